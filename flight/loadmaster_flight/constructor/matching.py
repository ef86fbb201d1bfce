"""The delivered pieces of some bins, checked against the plan and brought into its order.

# N = documents
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.errors import InternalError
from loadmaster_flight.wire.step_plan import WHOLE, StepPlan

from .delivery import PLACE, Delivery, name_of

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The documents of some bins, in the order (bin, canonical order). Arrays of shape (N,), int64.

    Attributes:
        rows: Where each document is in `delivery`.
        planned: Where each document is in the plan's pieces.
        place: Arrays by name: those of PLACE.
        num_tokens: Real tokens of each.
        delivery: What was delivered; may hold rows of other bins too.
    """

    rows: Int64Array
    planned: Int64Array
    bin: Int64Array
    place: dict[str, Int64Array]
    num_tokens: Int64Array
    delivery: Delivery

    @property
    def pieces(self) -> pa.RecordBatch:
        """All facts that were delivered, schema FACTS."""
        return self.delivery.facts

    def column(self, name: str) -> npt.NDArray[np.generic]:
        """A numeric column of the delivered pieces, shape (N,), in document order."""
        values: npt.NDArray[np.generic] = self.pieces.column(name).to_numpy(zero_copy_only=False)[self.rows]
        return values


def match_documents(plan: StepPlan, delivery: Delivery, bins: range) -> Documents:
    """Find the pieces that `plan` puts into `bins`. Pieces of other bins, sent for their pixels, are left alone.

    Raises:
        InternalError: A piece is missing, is there twice, was not planned or has another length than planned; names it.
    """
    step_N, bin_N = delivery.numbers("step"), delivery.numbers("bin")
    rows_N = np.flatnonzero((step_N == plan.step) & (bin_N >= bins.start) & (bin_N < bins.stop))
    got = {name: delivery.numbers(name)[rows_N] for name in ("bin", *PLACE)}
    order_N = _document_order(got)
    got = {name: values[order_N] for name, values in got.items()}
    rows_N = rows_N[order_N]
    planned_N = _planned(plan, bins)
    _require_same(plan, got, {name: getattr(plan.pieces, name)[planned_N] for name in got})
    num_tokens_N = delivery.numbers("num_tokens")[rows_N]
    _require_lengths(plan, got, num_tokens_N, plan.pieces.num_tokens[planned_N])
    return Documents(
        rows=rows_N,
        planned=planned_N,
        bin=got["bin"],
        place={name: got[name] for name in PLACE},
        num_tokens=num_tokens_N,
        delivery=delivery,
    )


def _document_order(columns: dict[str, Int64Array]) -> Int64Array:
    return np.lexsort(tuple(columns[name] for name in (*reversed(PLACE), "bin"))).astype(np.int64)


def _planned(plan: StepPlan, bins: range) -> Int64Array:
    """The pieces that the plan puts into `bins`, in document order."""
    mine = np.flatnonzero((plan.pieces.bin >= bins.start) & (plan.pieces.bin < bins.stop))
    columns = {name: getattr(plan.pieces, name)[mine] for name in ("bin", *PLACE)}
    planned: Int64Array = mine[_document_order(columns)]
    return planned


def _require_same(plan: StepPlan, got: dict[str, Int64Array], want: dict[str, Int64Array]) -> None:
    if all(np.array_equal(got[name], want[name]) for name in got):
        return
    delivered, planned = _keys(got), _keys(want)
    facts = []
    if missing := sorted(set(planned) - set(delivered)):
        facts.append(f"{len(missing)} of {len(planned)} pieces are missing, the first is {name_of(missing[0])}")
    if extra := sorted(set(delivered) - set(planned)):
        facts.append(f"{len(extra)} pieces were not planned, the first is {name_of(extra[0])}")
    if not facts:
        twice = next(key for key in sorted(set(delivered)) if delivered.count(key) != planned.count(key))
        facts.append(f"a piece was delivered more than once: {name_of(twice)}")
    raise InternalError(f"step {plan.step}: " + "; ".join(facts))


def _require_lengths(plan: StepPlan, got: dict[str, Int64Array], tokens_N: Int64Array, planned_N: Int64Array) -> None:
    wrong = np.flatnonzero(((planned_N != WHOLE) & (tokens_N != planned_N)) | (tokens_N < 1))
    if len(wrong):
        at = int(wrong[0])
        rule = f"must have {planned_N[at]} tokens" if planned_N[at] != WHOLE else "must have a token"
        raise InternalError(f"step {plan.step}: the piece {name_of(_keys(got)[at])} {rule}, got {tokens_N[at]}")


def _keys(columns: dict[str, Int64Array]) -> list[tuple[int, ...]]:
    return list(zip(*(columns[name].tolist() for name in ("bin", *PLACE)), strict=True))
