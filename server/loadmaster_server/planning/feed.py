"""One source's rows in the source's order, epoch after epoch, from a cursor on.

# N = rows, L = lanes
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadmaster_flight.wire.errors import DataError, RunPausedError
from loadmaster_flight.wire.schemas import Verdict

from .bad_rows import BadRows
from .demand import Demand
from .epoch_counts import NOTHING, EpochCounts, count_epochs
from .lanes import NEXT_ROW, EpochLanes
from .rows import BLOCK_INDEX, EPOCH, LANE, POS, TOKENS, UNIT, VERDICT, Int64Array, RowTable
from .rules import SourceRules

_MAX_EPOCHS_AHEAD = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """Where a stream is in a source; everything that its further order depends on.

    Attributes:
        epoch: Epoch of `cursor_L3`.
        next_lane: The lane whose turn it is.
        cursor_L3: Shape (L, 3), int64: unit_index, block_index, next_pos per lane.
        head_offset: Tokens of the next sample that are drawn already; `head_tokens` is its length then, else 0.
        yielded_epoch: Last epoch that yielded a piece; -1 before the first.
        num_rows: Rows consumed so far, skipped and bad ones included.
        bad_at: Which of the last 1,000 rows were bad, as counts of rows before them.
        counted: What was consumed of `epoch`.
        learned: What the last epoch held that was consumed to its end; None before the first.
    """

    epoch: int = 0
    next_lane: int = 0
    cursor_L3: Int64Array
    head_offset: int = 0
    head_tokens: int = 0
    yielded_epoch: int = -1
    is_exhausted: bool = False
    num_rows: int = 0
    bad_at: tuple[int, ...] = ()
    counted: EpochCounts = NOTHING
    learned: EpochCounts | None = None

    @staticmethod
    def start(num_lanes: int) -> SourceState:
        return SourceState(cursor_L3=np.zeros((num_lanes, 3), np.int64))


@dataclass(slots=True, kw_only=True)
class Head:
    """A draw's own place in a feed, thrown away or committed as a whole.

    `place` counts OK rows of the feed's buffer, `consumed` counts its rows.
    """

    place: int = 0
    offset: int = 0
    consumed: int = 0
    yielded_epoch: int = -1
    is_exhausted: bool = False
    is_moved: bool = False


class SourceFeed:
    """Buffer of one source's measured rows. Not thread-safe; `add` may come at any time between two plans."""

    def __init__(self, source: int, rules: SourceRules, state: SourceState) -> None:
        self.source = source
        self.rules = rules
        self.state = state
        self._bad = BadRows(rules.max_bad_ratio, state.num_rows, state.bad_at)
        self._epochs = {state.epoch: EpochLanes(source, state.epoch, state.cursor_L3, state.next_lane)}
        self._epoch = state.epoch  # the one that is being merged; all before it are known to the end
        self._is_whole = not state.cursor_L3.any()  # the epoch is known from its first row on
        self._rows_per_epoch: int | None = None
        self._seen_rows, self._seen_tokens = 0, 0
        self._load(RowTable.empty())

    # -- arriving rows

    def add(self, table: RowTable) -> None:
        """Take measured rows; epochs that are over already are ignored."""
        epoch_N = table.values_NF[:, EPOCH]
        for epoch in np.unique(epoch_N).tolist():
            if epoch >= self._epoch and not self._is_past_end(epoch):
                self._lanes(epoch).add(table.take(epoch_N == epoch))
        self._is_dirty = True

    def _lanes(self, epoch: int) -> EpochLanes:
        if epoch not in self._epochs:
            start_L3 = np.zeros_like(self.state.cursor_L3)
            self._epochs[epoch] = EpochLanes(self.source, epoch, start_L3, 0)
        return self._epochs[epoch]

    def _is_past_end(self, epoch: int) -> bool:
        return self.rules.max_epochs is not None and epoch >= self.rules.max_epochs

    def merge(self) -> None:
        """Move rows whose order is certain into the buffer."""
        if not self._is_dirty:
            return
        tables = [self.rows]
        while not self._is_past_end(self._epoch):
            lanes = self._lanes(self._epoch)
            tables.append(lanes.merge())
            if not lanes.is_known:
                break
            self._finish_epoch(lanes)
        self._count_arrived(tables[1:])
        self._load(RowTable.concat([table for table in tables if len(table)]))

    def _finish_epoch(self, lanes: EpochLanes) -> None:
        if self._is_whole:
            self._rows_per_epoch = lanes.num_added
        del self._epochs[self._epoch]
        self._epoch += 1
        self._is_whole = True

    def _count_arrived(self, tables: list[RowTable]) -> None:
        for table in tables:
            self._bad.extend(table)
            is_ok_N = table.values_NF[:, VERDICT] == Verdict.OK
            self._seen_rows += len(table)
            self._seen_tokens += int(table.values_NF[is_ok_N, TOKENS].sum())

    def _load(self, rows: RowTable) -> None:
        self.rows = rows
        ok_N = np.flatnonzero(rows.values_NF[:, VERDICT] == Verdict.OK)
        self.ok_rows: list[int] = ok_N.tolist()
        self.ok_tokens: list[int] = rows.values_NF[ok_N, TOKENS].tolist()
        self._is_dirty = False

    # -- drawing

    def head(self) -> Head:
        """A fresh draw position at the committed state."""
        state = self.state
        return Head(offset=state.head_offset, yielded_epoch=state.yielded_epoch, is_exhausted=state.is_exhausted)

    def peek(self, head: Head, *, longest: int | None) -> int | None:
        """Tokens of the sample at `head`, passing over rows that are not served (OK rows above `longest` too).

        Returns:
            The sample's whole length, 0 when more rows must be measured first, None when the source is exhausted.

        Raises:
            DataError: A whole epoch yields no piece.
            RunPausedError: Too many bad rows on the way there.
        """
        num_ok = len(self.ok_rows)
        while longest is not None and head.place < num_ok and self.ok_tokens[head.place] > longest:
            head.place += 1
        is_found = head.place < num_ok
        row = self.ok_rows[head.place] if is_found else len(self.rows)
        epoch = int(self.rows.values_NF[row, EPOCH]) if is_found else self._epoch
        self._check_passed(head, row, epoch, longest)
        if is_found:
            return self.ok_tokens[head.place]
        return None if self._is_past_end(self._epoch) else 0

    def _check_passed(self, head: Head, row: int, epoch: int, longest: int | None) -> None:
        if self._bad.paused_at is not None and self._bad.paused_at < row:
            raise RunPausedError(
                f"source {self.rules.name}: {self._bad.describe(self.rows)}; max_bad_ratio is "
                f"{self.rules.max_bad_ratio:g}: repair the source, or resume the run to pass over them",
                source=self.rules.name,
            )
        if epoch > head.yielded_epoch + 1:
            passed = _not_served(self.rows.take(slice(head.consumed, row)), longest)
            reasons = sorted(set(passed.reasons_N.tolist()))[:3]
            raise DataError(
                f"source {self.rules.name}, epoch {head.yielded_epoch + 1}: every row of an epoch was skipped: "
                f"reasons {', '.join(reasons) or 'none, it has no rows'}; "
                f"repair the source, or check sources.{self.rules.name}.transform",
                source=self.rules.name,
            )

    def advance(self, head: Head, tokens: int) -> None:
        """Draw `tokens` tokens of the sample at `head`."""
        row = self.ok_rows[head.place]
        if head.offset == 0:
            head.yielded_epoch = int(self.rows.values_NF[row, EPOCH])
        head.offset += tokens
        head.consumed, head.is_moved = row, True
        if head.offset >= self.ok_tokens[head.place]:
            head.place, head.offset, head.consumed = head.place + 1, 0, row + 1

    def exhaust(self, head: Head) -> None:
        """Consume what is left, rows that are not served, and end the source."""
        head.consumed, head.is_exhausted, head.is_moved = len(self.rows), True, True

    def forgive_bad_rows(self) -> None:
        """Go on after too many bad rows: a person has looked at them, or the log says that it went on."""
        self._bad.forgive()

    # -- committing

    def commit(self, head: Head, *, longest: int | None) -> RowTable:
        """Make a draw's position the state.

        Returns:
            The consumed rows that were not served, with verdict and reason.
        """
        consumed = self.rows.take(slice(0, head.consumed))
        self.state = self._state_after(head, consumed.values_NF, longest)
        self._bad.consume(head.consumed)
        self._load(self.rows.take(slice(head.consumed, None)))
        return _not_served(consumed, longest)

    def _state_after(self, head: Head, values_NF: Int64Array, longest: int | None) -> SourceState:
        before = self.state
        counted, learned = count_epochs(before.counted, before.epoch, values_NF, longest=longest)
        epoch, next_lane, cursor_L3 = before.epoch, before.next_lane, before.cursor_L3
        if len(values_NF):
            last_epoch = int(values_NF[-1, EPOCH])
            values_NF = values_NF[values_NF[:, EPOCH] == last_epoch]
            cursor_L3 = cursor_L3.copy() if epoch == last_epoch else np.zeros_like(cursor_L3)
            epoch, next_lane = last_epoch, (int(values_NF[-1, LANE]) + 1) % len(cursor_L3)
            cursor_L3[values_NF[:, LANE]] = _next_positions(values_NF)  # of a repeated lane the last row counts
        num_rows = before.num_rows + head.consumed
        return SourceState(
            epoch=epoch,
            next_lane=next_lane,
            cursor_L3=cursor_L3,
            head_offset=head.offset,
            head_tokens=self.ok_tokens[head.place] if head.offset else 0,
            yielded_epoch=head.yielded_epoch,
            is_exhausted=head.is_exhausted,
            num_rows=num_rows,
            bad_at=self._bad.recent(num_rows),
            counted=counted,
            learned=(counted if head.is_exhausted else learned) or before.learned,
        )

    # -- asking

    @property
    def num_buffered(self) -> int:
        """Rows that have arrived and are not consumed, skipped ones included."""
        return len(self.rows) + sum(lanes.num_unmerged for lanes in self._epochs.values())

    @property
    def tokens_per_row(self) -> float | None:
        """Mean over all rows seen, skipped ones included; None before the first row."""
        return self._seen_tokens / self._seen_rows if self._seen_rows else None

    def demands(self, rows: int) -> list[Demand]:
        """Ask for about `rows` more rows, over several epochs where these are known to be short."""
        demands: list[Demand] = []
        for epoch in range(self._epoch, self._epoch + _MAX_EPOCHS_AHEAD):
            if rows <= 0 or self._is_past_end(epoch):
                break
            lanes = self._lanes(epoch)
            if not lanes.is_known:
                demands.append(lanes.demand(rows))
            if self._rows_per_epoch is None:
                break
            rows -= max(1, self._rows_per_epoch - lanes.num_added)
        return demands


def _next_positions(values_NF: Int64Array) -> Int64Array:
    return np.asarray(values_NF[:, [UNIT, BLOCK_INDEX, POS]] + NEXT_ROW)


def _not_served(consumed: RowTable, longest: int | None) -> RowTable:
    """The rows without those that are served, each with a reason."""
    is_passed_N = consumed.values_NF[:, VERDICT] != Verdict.OK
    if longest is not None:
        is_passed_N |= consumed.values_NF[:, TOKENS] > longest
    if not is_passed_N.any():
        return RowTable.empty()
    rest = consumed.take(is_passed_N)
    was_ok_N = rest.values_NF[:, VERDICT] == Verdict.OK
    values_NF, reasons_N = rest.values_NF.copy(), rest.reasons_N.copy()
    values_NF[was_ok_N, VERDICT] = Verdict.SKIPPED
    reasons_N[reasons_N == None] = "no reason given"  # noqa: E711  (elementwise)
    reasons_N[was_ok_N] = f"longer than {longest} tokens, and over_long is skip"
    return RowTable(values_NF=values_NF, spans_N=rest.spans_N, reasons_N=reasons_N)
