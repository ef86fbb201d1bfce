"""What an epoch of a source holds, counted while it is planned.

# N = rows
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmaster_flight.wire.schemas import Verdict

from .limits import BoolArray
from .rows import EPOCH, VERDICT, Int64Array


class EpochCounts(NamedTuple):
    """Rows of an epoch, and the samples and tokens among them that are served."""

    num_rows: int = 0
    num_samples: int = 0
    num_tokens: int = 0

    def plus(self, num_rows: int, served_N: Int64Array) -> EpochCounts:
        """With more rows of the epoch, those that are served of these lengths."""
        return EpochCounts(
            self.num_rows + num_rows, self.num_samples + len(served_N), self.num_tokens + int(served_N.sum())
        )


NOTHING = EpochCounts()


def count_epochs(
    before: EpochCounts, epoch: int, values_NF: Int64Array, ok_tokens_N: Int64Array, left_out_N: BoolArray | None
) -> tuple[EpochCounts, EpochCounts | None]:
    """Count rows in a source's order.

    Args:
        before: Counts of `epoch` so far.
        ok_tokens_N: Lengths of the rows whose verdict is OK.
        left_out_N: Which of these are not served; None: all are.

    Returns:
        Counts of the last row's epoch so far, and of the last epoch that ended before it; None where none did.
    """
    whole: EpochCounts | None = None
    served_N = ok_tokens_N if left_out_N is None else ok_tokens_N[~left_out_N]
    if len(values_NF) and values_NF[0, EPOCH] == epoch == values_NF[-1, EPOCH]:
        return before.plus(len(values_NF), served_N), whole
    ok_epoch_N = values_NF[values_NF[:, VERDICT] == Verdict.OK, EPOCH]
    epoch_N = ok_epoch_N if left_out_N is None else ok_epoch_N[~left_out_N]
    for now in np.unique(values_NF[:, EPOCH]).tolist():
        if now != epoch:
            before, whole, epoch = NOTHING, before, now
        num_rows = int((values_NF[:, EPOCH] == now).sum())
        before = before.plus(num_rows, served_N[epoch_N == now])
    return before, whole
