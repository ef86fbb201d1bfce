"""One source's rows in the source's order, epoch after epoch, from a cursor on.

# N = rows, L = lanes
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from loadmaster_flight.wire.errors import DataError, RunPausedError
from loadmaster_flight.wire.schemas import Verdict

from .bad_rows import BadRows
from .columns import Int64Array
from .demand import Demand
from .epoch_counts import NOTHING, EpochCounts, count_epochs
from .lanes import NEXT_ROW, EpochLanes
from .limits import BoolArray, LengthLimits
from .rows import CURSOR, EPOCH, LANE, TOKENS, VERDICT, RowTable
from .rules import SourceRules

_MAX_EPOCHS_AHEAD = 256
_NO_ROWS = RowTable.empty()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A draw's own place in a feed, thrown away or committed as a whole.

    `place` counts OK rows of the feed's buffer, `consumed` counts its rows, both from the committed place on.
    """

    place: int = 0
    offset: int = 0
    consumed: int = 0
    yielded_epoch: int = -1
    is_exhausted: bool = False
    is_moved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """Samples that may be drawn from a head on, in order.

    Attributes:
        tokens_K: Shape (K,), int64, their lengths.
        first: The place of the first one, as a head counts it; the others follow unless `place_K` says otherwise.
    """

    tokens_K: Int64Array
    first: int
    place_K: Int64Array | None = None

    def places(self, index_M: Int64Array) -> Int64Array:
        """Places of the samples at `index_M`."""
        return index_M + self.first if self.place_K is None else self.place_K[index_M]

    def place(self, index: int) -> int:
        """Place of one sample."""
        return index + self.first if self.place_K is None else int(self.place_K[index])


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
        self._is_dirty = False
        self._load(RowTable.empty())

    # -- arriving rows

    def add(self, table: RowTable) -> None:
        """Take measured rows; epochs that are over already are ignored."""
        epoch_N = table.values_NF[:, EPOCH]
        is_one = len(epoch_N) > 0 and bool((epoch_N == epoch_N[0]).all())
        for epoch in [int(epoch_N[0])] if is_one else np.unique(epoch_N).tolist():
            if epoch >= self._epoch and not self._is_past_end(epoch):
                self._lanes(epoch).add(table if is_one else table.take(epoch_N == epoch))
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
        tables: list[RowTable] = []
        while not self._is_past_end(self._epoch):
            lanes = self._lanes(self._epoch)
            tables.append(lanes.merge())
            if not lanes.is_known:
                break
            self._finish_epoch(lanes)
        self._is_dirty = False
        self._count_arrived(tables)
        self._load(RowTable.concat([table for table in (self.rows, *tables) if len(table)]))

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
        self._ok_N = np.flatnonzero(rows.values_NF[:, VERDICT] == Verdict.OK)
        self._ok_tokens_N = rows.values_NF[self._ok_N, TOKENS]
        self._ok_patches = rows.patches.take(self._ok_N)
        self._last_epoch = int(rows.values_NF[-1, EPOCH]) if len(rows) else 0
        self._begin()

    def _begin(self) -> None:
        """The next draw begins at the state; with hundreds of sources most of them are not drawn from in a step."""
        state = self.state
        self._head = Head(offset=state.head_offset, yielded_epoch=state.yielded_epoch, is_exhausted=state.is_exhausted)
        self._stock: tuple[Head, LengthLimits, Stock] | None = None

    # -- drawing

    def head(self) -> Head:
        """A fresh draw position at the committed state."""
        return self._head

    def stock(self, head: Head, limits: LengthLimits) -> Stock:
        """Samples that may be drawn without another look, as far as they have arrived; see `peek`."""
        if self._stock is None or self._stock[0] is not head or self._stock[1] != limits:
            self._stock = (head, limits, self._stock_from(head, limits))
        return self._stock[2]

    def _stock_from(self, head: Head, limits: LengthLimits) -> Stock:
        tokens_K, place_K = self._ok_tokens_N[head.place :], None
        left_out_K = limits.left_out(tokens_K, self._ok_patches.take(slice(head.place, None)))
        if left_out_K is not None:
            at_K = np.flatnonzero(~left_out_K)
            place_K, tokens_K = at_K + head.place, tokens_K[at_K]
        stock = Stock(tokens_K=tokens_K, first=head.place, place_K=place_K)
        if self._bad.paused_at is None and self._last_epoch <= head.yielded_epoch + 1:
            return stock
        stop = self._first_to_check(head, stock.places(np.arange(len(tokens_K))))
        return replace(stock, tokens_K=tokens_K[:stop])

    def _first_to_check(self, head: Head, place_K: Int64Array) -> int:
        """How many samples lie before the first one that `_check_passed` would refuse."""
        row_K = self._ok_N[place_K]
        stop = len(row_K) if self._bad.paused_at is None else int(np.searchsorted(row_K, self._bad.paused_at))
        epoch_K = self.rows.values_NF[row_K, EPOCH]
        skips_K = np.flatnonzero(epoch_K > np.append(head.yielded_epoch, epoch_K[:-1]) + 1)
        return min(stop, int(skips_K[0])) if len(skips_K) else stop

    def peek(self, head: Head, limits: LengthLimits) -> bool:
        """Look at what follows when a head's stock is used up.

        Returns:
            Whether there is more to come: rows must be measured first. False: the source is exhausted.

        Raises:
            DataError: A whole epoch yields no piece.
            RunPausedError: Too many bad rows on the way there.
        """
        left_out_K = limits.left_out(self._ok_tokens_N[head.place :], self._ok_patches.take(slice(head.place, None)))
        place = head.place if left_out_K is None else head.place + int(np.append(left_out_K, False).argmin())
        row = int(self._ok_N[place]) if place < len(self._ok_N) else len(self.rows)
        epoch = int(self.rows.values_NF[row, EPOCH]) if row < len(self.rows) else self._epoch
        self._check_passed(head, row, epoch, limits)
        return not self._is_past_end(self._epoch)

    def _check_passed(self, head: Head, row: int, epoch: int, limits: LengthLimits) -> None:
        if self._bad.paused_at is not None and self._bad.paused_at < row:
            raise RunPausedError(
                f"source {self.rules.name}: {self._bad.describe(self.rows)}; max_bad_ratio is "
                f"{self.rules.max_bad_ratio:g}: repair the source, or resume the run to pass over them",
                source=self.rules.name,
            )
        if epoch > head.yielded_epoch + 1:
            passed = _not_served(self.rows.take(slice(head.consumed, row)), limits)
            reasons = sorted(set(passed.reasons_N.tolist()))[:3]
            raise DataError(
                f"source {self.rules.name}, epoch {head.yielded_epoch + 1}: every row of an epoch was skipped: "
                f"reasons {', '.join(reasons) or 'none, it has no rows'}; "
                f"repair the source, or check sources.{self.rules.name}.transform",
                source=self.rules.name,
            )

    def advanced(self, head: Head, stock: Stock, num_samples: int, offset: int) -> Head:
        """The head after `num_samples` whole samples of its stock, and `offset` tokens of the next one."""
        place = stock.place(num_samples) if offset else stock.place(num_samples - 1) + 1
        row = int(self._ok_N[place if offset else place - 1])
        return Head(
            place=place,
            offset=offset,
            consumed=row + (offset == 0),
            yielded_epoch=int(self.rows.values_NF[row, EPOCH]),
            is_moved=True,
        )

    def samples(self, place_M: Int64Array) -> RowTable:
        """The rows of the samples at these places, which ascend; without a copy where they lie side by side."""
        row_M = self._ok_N[place_M]
        first, num = int(row_M[0]), len(row_M)
        lies_side_by_side = int(row_M[-1]) - first == num - 1 and bool((row_M[1:] > row_M[:-1]).all())
        return self.rows.take(slice(first, first + num) if lies_side_by_side else row_M)

    def exhausted(self, head: Head) -> Head:
        """The head after what is left, rows that are not served, and the source's end."""
        return replace(head, consumed=len(self.rows), is_exhausted=True, is_moved=True)

    def forgive_bad_rows(self) -> None:
        """Go on after too many bad rows: a person has looked at them, or the log says that it went on."""
        self._bad.forgive()
        self._begin()

    # -- committing

    def commit(self, head: Head, limits: LengthLimits) -> RowTable:
        """Make a draw's position the state.

        Returns:
            The consumed rows that were not served, with verdict and reason.
        """
        consumed = self.rows.take(slice(0, head.consumed))
        num_ok = int(np.searchsorted(self._ok_N, head.consumed))
        left_out_N = limits.left_out(self._ok_tokens_N[:num_ok], self._ok_patches.take(slice(0, num_ok)))
        self.state = self._state_after(head, consumed.values_NF, self._ok_tokens_N[:num_ok], left_out_N)
        self._bad.consume(head.consumed)
        self.rows = self.rows.take(slice(head.consumed, None))
        self._ok_N, self._ok_tokens_N = self._ok_N[num_ok:] - head.consumed, self._ok_tokens_N[num_ok:]
        self._ok_patches = self._ok_patches.take(slice(num_ok, None))
        self._begin()
        return _NO_ROWS if num_ok == len(consumed) and left_out_N is None else _not_served(consumed, limits)

    def _state_after(
        self, head: Head, values_NF: Int64Array, ok_tokens_N: Int64Array, left_out_N: BoolArray | None
    ) -> SourceState:
        before = self.state
        counted, learned = count_epochs(before.counted, before.epoch, values_NF, ok_tokens_N, left_out_N)
        num_rows = before.num_rows + head.consumed
        epoch, next_lane, cursor_L3 = before.epoch, before.next_lane, before.cursor_L3
        if len(values_NF):
            epoch, next_lane = int(values_NF[-1, EPOCH]), (int(values_NF[-1, LANE]) + 1) % len(cursor_L3)
            cursor_L3 = _moved(cursor_L3 if epoch == before.epoch else np.zeros_like(cursor_L3), values_NF, epoch)
        return SourceState(
            epoch=epoch,
            next_lane=next_lane,
            cursor_L3=cursor_L3,
            head_offset=head.offset,
            head_tokens=int(self._ok_tokens_N[head.place]) if head.offset else 0,
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
        num = len(self.rows)
        for lanes in self._epochs.values():
            num += lanes.num_unmerged
        return num

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


def _moved(cursor_L3: Int64Array, values_NF: Int64Array, epoch: int) -> Int64Array:
    """Cursors after these rows, as far as they are of `epoch`; of a repeated lane the last row counts."""
    if values_NF[0, EPOCH] != epoch:
        values_NF = values_NF[values_NF[:, EPOCH] == epoch]
    last_L = np.full(len(cursor_L3), -1)
    last_L[values_NF[:, LANE]] = np.arange(len(values_NF))
    after_L3, moved_L = cursor_L3.copy(), last_L >= 0
    after_L3[moved_L] = values_NF[last_L[moved_L], CURSOR] + NEXT_ROW
    return after_L3


def _not_served(consumed: RowTable, limits: LengthLimits) -> RowTable:
    """The rows without those that are served, each with a reason."""
    is_passed_N = consumed.values_NF[:, VERDICT] != Verdict.OK
    left_out_N = limits.left_out(consumed.values_NF[:, TOKENS], consumed.patches)
    if left_out_N is not None:
        is_passed_N |= left_out_N
    if not is_passed_N.any():
        return RowTable.empty()
    rest = consumed.take(is_passed_N)
    was_ok_N = rest.values_NF[:, VERDICT] == Verdict.OK
    values_NF, reasons_N = rest.values_NF.copy(), rest.reasons_N.copy()
    values_NF[was_ok_N, VERDICT] = Verdict.SKIPPED
    reasons_N[reasons_N == None] = "no reason given"  # noqa: E711  (elementwise)
    has_media_N = rest.patches.has_N
    for i in np.flatnonzero(was_ok_N).tolist():
        reasons_N[i] = limits.reason(has_media=bool(has_media_N[i]))
    return RowTable(values_NF=values_NF, spans_N=rest.spans_N, reasons_N=reasons_N, patches=rest.patches)
