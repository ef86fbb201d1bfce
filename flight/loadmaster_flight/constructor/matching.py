"""The delivered pieces of some bins, checked against the plan and brought into its order.

# N = documents
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.errors import BadRequestError, InternalError
from loadmaster_flight.wire.schemas import PIECES
from loadmaster_flight.wire.step_plan import WHOLE, StepPlan

Int64Array = npt.NDArray[np.int64]
PLACE = ("source", "epoch", "shard", "block", "pos", "first_token")
"""What names a piece of a step, most significant first: the canonical order inside a bin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The documents of some bins, in the order (bin, canonical order). Arrays of shape (N,), int64.

    Attributes:
        rows: Where each document is in `pieces`.
        place: Arrays by name: those of PLACE.
        num_tokens: Real tokens of each.
        pieces: What was delivered, schema PIECES; may hold rows of other bins too.
    """

    rows: Int64Array
    bin: Int64Array
    place: dict[str, Int64Array]
    num_tokens: Int64Array
    pieces: pa.RecordBatch

    def column(self, name: str) -> npt.NDArray[np.generic]:
        """A numeric column of the delivered pieces, shape (N,), in document order."""
        values: npt.NDArray[np.generic] = self.pieces.column(name).to_numpy(zero_copy_only=False)[self.rows]
        return values


def match_documents(plan: StepPlan, pieces: pa.RecordBatch | pa.Table, bins: range) -> Documents:
    """Find the pieces that `plan` puts into `bins`.

    Raises:
        BadRequestError: `pieces` has another schema than PIECES.
        InternalError: A piece is missing, is there twice, was not planned or has another length than planned; names it.
    """
    batch = _one_batch(pieces)
    step_N = _numbers(batch, "step")
    bin_N = _numbers(batch, "bin")
    rows_N = np.flatnonzero((step_N == plan.step) & (bin_N >= bins.start) & (bin_N < bins.stop))
    got = {name: _numbers(batch, name)[rows_N] for name in ("bin", *PLACE)}
    order_N = _document_order(got)
    got = {name: values[order_N] for name, values in got.items()}
    rows_N = rows_N[order_N]
    want, planned_tokens_N = _planned(plan, bins)
    _require_same(plan, got, want)
    num_tokens_N = _numbers(batch, "num_tokens")[rows_N]
    _require_lengths(plan, got, num_tokens_N, planned_tokens_N)
    place = {name: got[name] for name in PLACE}
    return Documents(rows=rows_N, bin=got["bin"], place=place, num_tokens=num_tokens_N, pieces=batch)


def _one_batch(pieces: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if not pieces.schema.equals(PIECES):
        raise BadRequestError(f"pieces must have the schema PIECES, got fields {pieces.schema.names}")
    if isinstance(pieces, pa.RecordBatch):
        return pieces
    batches = pieces.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=PIECES)


def _numbers(batch: pa.RecordBatch, name: str) -> Int64Array:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.int64)


def _document_order(columns: dict[str, Int64Array]) -> Int64Array:
    return np.lexsort(tuple(columns[name] for name in (*reversed(PLACE), "bin"))).astype(np.int64)


def _planned(plan: StepPlan, bins: range) -> tuple[dict[str, Int64Array], Int64Array]:
    """What the plan puts into `bins`, in document order, and the length of each (WHOLE where only loaders know it)."""
    mine = plan.pieces.take((plan.pieces.bin >= bins.start) & (plan.pieces.bin < bins.stop))
    columns = {name: getattr(mine, name) for name in ("bin", *PLACE)}
    order_N = _document_order(columns)
    return {name: values[order_N] for name, values in columns.items()}, mine.num_tokens[order_N]


def _require_same(plan: StepPlan, got: dict[str, Int64Array], want: dict[str, Int64Array]) -> None:
    if all(np.array_equal(got[name], want[name]) for name in got):
        return
    delivered, planned = _keys(got), _keys(want)
    facts = []
    if missing := sorted(set(planned) - set(delivered)):
        facts.append(f"{len(missing)} of {len(planned)} pieces are missing, the first is {_name(missing[0])}")
    if extra := sorted(set(delivered) - set(planned)):
        facts.append(f"{len(extra)} pieces were not planned, the first is {_name(extra[0])}")
    if not facts:
        twice = next(key for key in sorted(set(delivered)) if delivered.count(key) != planned.count(key))
        facts.append(f"a piece was delivered more than once: {_name(twice)}")
    raise InternalError(f"step {plan.step}: " + "; ".join(facts))


def _require_lengths(plan: StepPlan, got: dict[str, Int64Array], tokens_N: Int64Array, planned_N: Int64Array) -> None:
    wrong = np.flatnonzero(((planned_N != WHOLE) & (tokens_N != planned_N)) | (tokens_N < 1))
    if len(wrong):
        at = int(wrong[0])
        rule = f"must have {planned_N[at]} tokens" if planned_N[at] != WHOLE else "must have a token"
        raise InternalError(f"step {plan.step}: the piece {_name(_keys(got)[at])} {rule}, got {tokens_N[at]}")


def _keys(columns: dict[str, Int64Array]) -> list[tuple[int, ...]]:
    return list(zip(*(columns[name].tolist() for name in ("bin", *PLACE)), strict=True))


def _name(key: tuple[int, ...]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(("bin", *PLACE), key, strict=True))
