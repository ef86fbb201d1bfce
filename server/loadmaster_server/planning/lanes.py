"""One epoch of one source: rows arrive lane by lane and leave in the source's order.

# N = rows, L = lanes, F = fields
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.schemas import Verdict

from .columns import Int64Array
from .demand import Demand
from .ordering import stable_order
from .rows import BLOCK_INDEX, CURSOR, LANE, POS, UNIT, VERDICT, RowTable

NEXT_ROW = np.array((0, 0, 1), np.int64)
_NO_LIMIT = np.iinfo(np.int64).max


class EpochLanes:
    """Merges lanes round robin: every live lane yields one row a round, lane 0 first; a lane ends after its last row.

    So the j-th row of lane l is at (j, l) in the order, and it is known to be next as soon as all lanes that have not
    ended are known up to there. Rows may arrive in any batches and any order of lanes, and repeatedly.

    Args:
        cursor_L3: Shape (L, 3), int64: unit_index, block_index and next_pos of each lane's next row. Copied.
        next_lane: The lane whose turn it is.
    """

    def __init__(self, source: int, epoch: int, cursor_L3: Int64Array, next_lane: int) -> None:
        num_lanes = len(cursor_L3)
        self.source = source
        self.epoch = epoch
        self._known_L3 = cursor_L3.copy()
        self._round_L = (np.arange(num_lanes) < next_lane).astype(np.int64)  # round of the first unknown row
        self._is_ended_L = np.zeros(num_lanes, np.bool_)
        self._rows: list[RowTable] = []
        self._rounds: list[Int64Array] = []
        self.num_added = 0

    @property
    def is_known(self) -> bool:
        """Every lane's end has arrived."""
        return bool(self._is_ended_L.all())

    @property
    def num_unmerged(self) -> int:
        return sum(len(rows) for rows in self._rows)

    def add(self, table: RowTable) -> None:
        """Take rows of some lanes, each lane's in order; what is known already is dropped.

        Raises:
            BadRequestError: A lane out of range, or rows missing between the known ones and these.
        """
        lane_N = table.values_NF[:, LANE]
        if len(table) and lane_N.max() >= len(self._is_ended_L):
            raise BadRequestError(
                f"lane must be in [0, {len(self._is_ended_L)}) for source {self.source}, got {lane_N.max()}"
            )
        if (lane_N[1:] < lane_N[:-1]).any():
            table = table.take(stable_order([lane_N]))
        is_end_N = table.values_NF[:, VERDICT] == Verdict.LANE_END
        is_new_N = ~is_end_N & self._is_new(table.values_NF)
        rows = table if is_new_N.all() else table.take(is_new_N)
        if len(rows):
            self._check_contiguous(rows.values_NF)
            self._append(rows)
        self._is_ended_L[table.values_NF[is_end_N, LANE]] = True

    def _is_new(self, values_NF: Int64Array) -> npt.NDArray[np.bool_]:
        lane_N = values_NF[:, LANE]
        unit_N, block_N, pos_N = (values_NF[:, column] for column in (UNIT, BLOCK_INDEX, POS))
        unit, block, pos = (self._known_L3[:, i][lane_N] for i in range(3))
        in_unit = (block_N > block) | ((block_N == block) & (pos_N >= pos))
        is_after = (unit_N > unit) | ((unit_N == unit) & in_unit)
        return np.asarray(is_after & ~self._is_ended_L[lane_N])

    def _check_contiguous(self, values_NF: Int64Array) -> None:
        """Every row is the next one of its lane's block, or the first one of another block."""
        starts_N = np.flatnonzero(_starts(values_NF[:, LANE]))
        known_M3 = self._known_L3[values_NF[starts_N, LANE]]
        same_block_N = np.ones(len(values_NF), np.bool_)
        for i, column in enumerate((UNIT, BLOCK_INDEX)):
            same_N = _like_before(values_NF[:, column], 0)
            same_N[starts_N] = values_NF[starts_N, column] == known_M3[:, i]
            same_block_N &= same_N
        goes_on_N = _like_before(values_NF[:, POS], 1)
        goes_on_N[starts_N] = values_NF[starts_N, POS] == known_M3[:, 2]
        gap_N = np.where(same_block_N, ~goes_on_N, values_NF[:, POS] != 0)
        if gap_N.any():
            self._refuse(values_NF, int(np.argmax(gap_N)), starts_N)

    def _refuse(self, values_NF: Int64Array, i: int, starts_N: Int64Array) -> None:
        lane, here = int(values_NF[i, LANE]), values_NF[i, [UNIT, BLOCK_INDEX, POS]]
        expected = self._known_L3[lane] if i in starts_N else values_NF[i - 1, [UNIT, BLOCK_INDEX, POS]] + NEXT_ROW
        raise BadRequestError(
            f"source {self.source}, epoch {self.epoch}, lane {lane}: rows must follow each other, "
            f"expected (unit, block, pos) {expected.tolist()} or a new block, got {here.tolist()}"
        )

    def _append(self, rows: RowTable) -> None:
        lane_N = rows.values_NF[:, LANE]
        first_N = np.flatnonzero(_starts(lane_N))
        count_N = np.diff(np.append(first_N, len(rows)))
        within_N = np.arange(len(rows)) - np.repeat(first_N, count_N)
        self._rounds.append(self._round_L[lane_N] + within_N)
        self._rows.append(rows)
        last_N = first_N + count_N - 1
        self._round_L[lane_N[first_N]] += count_N
        self._known_L3[lane_N[first_N]] = rows.values_NF[last_N, CURSOR] + NEXT_ROW
        self.num_added += len(rows)

    def merge(self) -> RowTable:
        """Hand out all rows whose place in the order is certain, in that order."""
        if not self._rows:
            return RowTable.empty()
        rows, round_N = RowTable.concat(self._rows), np.concatenate(self._rounds)
        lane_N = rows.values_NF[:, LANE]
        limit_round, limit_lane = self._limit()
        is_certain_N = (round_N < limit_round) | ((round_N == limit_round) & (lane_N < limit_lane))
        certain_N, rest_N = np.flatnonzero(is_certain_N), np.flatnonzero(~is_certain_N)
        self._rows = [rows.take(rest_N)] if len(rest_N) else []
        self._rounds = [round_N[rest_N]] if len(rest_N) else []
        return rows.take(certain_N[stable_order([round_N[certain_N], lane_N[certain_N]])])

    def _limit(self) -> tuple[int, int]:
        """(round, lane) of the first row that is not known yet."""
        if self.is_known:
            return _NO_LIMIT, 0
        round_L = np.where(self._is_ended_L, _NO_LIMIT, self._round_L)
        lane = int(np.argmin(round_L))
        return int(round_L[lane]), lane

    def demand(self, rows: int) -> Demand:
        """Ask for about `rows` more rows; lanes that are far ahead of the others are left out."""
        live_N = np.flatnonzero(~self._is_ended_L)
        per_lane = -(-rows // max(1, len(live_N)))
        round_N = self._round_L[live_N]
        behind_N = live_N[round_N < round_N.min() + per_lane]
        cursors = [[int(lane), *self._known_L3[lane].tolist()] for lane in behind_N]
        return Demand(source=self.source, epoch=self.epoch, cursors=cursors, rows_per_lane=per_lane)


def _like_before(value_N: Int64Array, step: int) -> npt.NDArray[np.bool_]:
    """Whether each value is that of the row before plus `step`."""
    is_like_N = np.empty(len(value_N), np.bool_)
    np.equal(value_N[1:], value_N[:-1] + step, out=is_like_N[1:])
    return is_like_N


def _starts(lane_N: Int64Array) -> npt.NDArray[np.bool_]:
    """True where another lane begins."""
    starts_N = np.ones(len(lane_N), np.bool_)
    starts_N[1:] = lane_N[1:] != lane_N[:-1]
    return starts_N
