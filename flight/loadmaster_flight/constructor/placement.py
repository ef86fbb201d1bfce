"""Where the documents of a dp rank lie in its microbatches.

# N = documents, M = microbatches of the rank, C = tokens of a microbatch
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadmaster_flight.spec import BatchSpec, Layout
from loadmaster_flight.wire.errors import InternalError
from loadmaster_flight.wire.step_plan import StepPlan

from .matching import Documents

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where documents lie in the rank's M*C tokens. `start_N` and `padded_N` have shape (N,), int64."""

    num_microbatches: int
    seq_len: int
    row_len: int
    microbatch_N: Int64Array
    start_N: Int64Array
    padded_N: Int64Array

    @property
    def size(self) -> int:
        return self.num_microbatches * self.seq_len

    @property
    def first_M(self) -> Int64Array:
        """The first document of each microbatch, int64 (M,)."""
        return np.searchsorted(self.microbatch_N, np.arange(self.num_microbatches))


def place_documents(plan: StepPlan, documents: Documents, batch: BatchSpec, bins: range) -> Placement:
    """Lay the documents of some bins down, one behind the other; layout pad: a row each.

    Raises:
        InternalError: They do not fit; names step and bin.
    """
    is_pad = batch.layout is Layout.PAD
    row_len = plan.seq_len // batch.rows if is_pad else plan.seq_len
    unit = row_len if is_pad else batch.align
    padded_N = -(-documents.num_tokens // unit) * unit
    microbatch_N = documents.bin - bins.start
    before_N = np.cumsum(padded_N) - padded_N
    first_M = np.searchsorted(microbatch_N, np.arange(len(bins)))
    bin_base_M = np.append(before_N, padded_N.sum())[first_M]
    offset_N = before_N - bin_base_M[microbatch_N]
    over = np.flatnonzero((offset_N + padded_N > plan.seq_len) | (is_pad & (documents.num_tokens > row_len)))
    if len(over):
        at = over[0]
        limit = f"{plan.seq_len} tokens" + (f" in rows of {row_len}" if is_pad else "")
        raise InternalError(
            f"step {plan.step}: bin {documents.bin[at]} must hold at most {limit}, got {offset_N[at] + padded_N[at]}"
        )
    return Placement(
        num_microbatches=len(bins),
        seq_len=plan.seq_len,
        row_len=row_len,
        microbatch_N=microbatch_N,
        start_N=microbatch_N * plan.seq_len + offset_N,
        padded_N=padded_N,
    )
