"""Drawing a step's pieces from the sources, by credit.

# N = pieces, S = sources
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loadmaster_flight.spec import Layout, OnExhausted
from loadmaster_flight.wire.errors import DataError

from . import rows as r
from .feed import Head, SourceFeed
from .mixture import FairChoice, spread_credit, weights_of
from .pieces import VALID, PieceTable
from .rows import Int64Array, ObjectArray, count_valid
from .rules import StepShape


class MissingRowsError(Exception):
    """Rows of these sources must be measured before the draw can go on."""

    def __init__(self, sources: list[int]) -> None:
        super().__init__(f"sources {sources}")
        self.sources = sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one step draws; nothing of it has happened before the heads are committed.

    Attributes:
        pieces: In the order drawn.
        credit_S: Shape (S,), in 2**-30 units; sums to what it summed to before (zero).
        weights_S: Shape (S,), weights at the beginning of the step, over the sources that were live.
        heads: Source -> its new place, for the sources that were looked at.
        has_ended: Nothing can be drawn after this: a source stopped the stream, or none is left.
    """

    pieces: PieceTable
    credit_S: list[int]
    weights_S: list[int]
    heads: dict[int, Head]
    has_ended: bool


def nothing_drawn(
    feeds: Sequence[SourceFeed], shares_S: Sequence[int], credit_S: Sequence[int], *, has_ended: bool
) -> Draw:
    """The beginning of a step's draw, from the committed places of the feeds."""
    return Draw(
        pieces=PieceTable.empty(),
        credit_S=list(credit_S),
        weights_S=weights_of(shares_S, [not feed.state.is_exhausted for feed in feeds]),
        heads={},
        has_ended=has_ended,
    )


def draw(
    feeds: Sequence[SourceFeed], shares_S: Sequence[int], earlier: Draw, shape: StepShape, amount: int, *,
    counts_samples: bool,
) -> Draw:  # fmt: skip
    """Draw pieces of `amount` more aligned tokens (layout pad: `amount` more pieces) on top of an earlier draw.

    Drawing twice is the same as drawing the sum at once.

    Args:
        shares_S: Relative integer shares at this step, shape (S,).
        earlier: Where to go on; not changed.
        counts_samples: Shares count samples, not tokens.

    Returns:
        Both draws together.

    Raises:
        MissingRowsError: More rows must be measured.
        DataError: A source ended that must not, or an epoch yields nothing; names the source.
        RunPausedError: A source has too many bad rows.
    """
    drawing = _Drawing(feeds, shares_S, earlier, shape, counts_samples)
    drawing.run(amount)
    return drawing.result()


@dataclass(slots=True, kw_only=True)
class _Log:
    """Drawn pieces as columns of plain integers."""

    source: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class _Drawing:
    """One draw in progress."""

    def __init__(
        self, feeds: Sequence[SourceFeed], shares_S: Sequence[int], earlier: Draw, shape: StepShape,
        counts_samples: bool,
    ) -> None:  # fmt: skip
        self._feeds, self._shares_S, self._earlier, self._shape = feeds, shares_S, earlier, shape
        self._counts_samples = counts_samples
        self._longest = shape.row_len if shape.skips_long else None
        self._heads = {source: replace(head) for source, head in earlier.heads.items()}
        self._is_live_S = [not self._heads.get(feed.source, feed.state).is_exhausted for feed in feeds]
        self._next_tokens = [0] * len(feeds)
        self._log = _Log()
        self._is_stopped = False
        self._weigh(earlier.credit_S)

    def _weigh(self, credit_S: Sequence[int]) -> None:
        """Set the weights over the live sources, and hand them the credit of all others."""
        self._now_S = weights_of(self._shares_S, self._is_live_S)
        self._has_sources = any(self._now_S)
        self._credit_S = spread_credit(credit_S, self._now_S) if self._has_sources else list(credit_S)
        self._choice = FairChoice(self._now_S, self._credit_S)

    def run(self, amount: int) -> None:
        counts_pieces, align = self._shape.layout is Layout.PAD, self._shape.align
        drawn = 0
        while drawn < amount:
            self._offer_due()
            if self._is_stopped or not self._has_sources:
                return
            tokens = self._draw_from(self._choice.take())
            drawn += 1 if counts_pieces else -(-tokens // align) * align

    def _offer_due(self) -> None:
        """State the next piece of every source that has fallen due."""
        missing: list[int] = []
        while (source := self._choice.next_due()) is not None:
            head = self._heads.get(source)
            if head is None:
                head = self._heads[source] = self._feeds[source].head()
            tokens = self._feeds[source].peek(head, longest=self._longest)
            if tokens is None and not missing:
                self._end(source, head)
                if self._is_stopped or not self._has_sources:
                    return
            elif not tokens:
                missing.append(source)
            else:
                self._next_tokens[source] = tokens
                self._choice.offer(source, self._units(head, tokens))
        if missing:
            raise MissingRowsError(missing)

    def _units(self, head: Head, sample_tokens: int) -> int:
        if self._counts_samples:
            return 0 if head.offset else 1
        return min(sample_tokens - head.offset, self._shape.row_len)

    def _end(self, source: int, head: Head) -> None:
        """The source is exhausted: do what its rule says."""
        rules = self._feeds[source].rules
        if rules.on_exhausted is OnExhausted.ERROR:
            raise DataError(
                f"source {rules.name} is exhausted after max_epochs {rules.max_epochs} at step {self._shape.step}, "
                "and its on_exhausted is error",
                source=rules.name,
            )
        self._feeds[source].exhaust(head)
        self._is_live_S[source] = False
        self._is_stopped |= rules.on_exhausted is OnExhausted.STOP
        self._weigh(self._choice.credit())

    def _draw_from(self, source: int) -> int:
        head, feed, log = self._heads[source], self._feeds[source], self._log
        units = self._units(head, self._next_tokens[source])
        tokens = min(self._next_tokens[source] - head.offset, self._shape.row_len)
        log.source.append(source)
        log.row.append(feed.ok_rows[head.place])
        log.first.append(head.offset)
        log.tokens.append(tokens)
        feed.advance(head, tokens)
        self._choice.charge(source, units)
        return tokens

    def result(self) -> Draw:
        return Draw(
            pieces=PieceTable.concat([self._earlier.pieces, self._pieces()]),
            credit_S=self._choice.credit(),
            weights_S=self._earlier.weights_S,
            heads=self._heads,
            has_ended=self._is_stopped or not self._has_sources,
        )

    def _pieces(self) -> PieceTable:
        log = self._log
        if not log.source:
            return PieceTable.empty()
        source_N, row_N, first_N, tokens_N = (
            np.array(column, np.int64) for column in (log.source, log.row, log.first, log.tokens)
        )
        rows_NF = np.empty((len(source_N), r.VALID + 1), np.int64)
        spans_N = np.full(len(source_N), None, np.object_)
        order_N = np.argsort(source_N, kind="stable")
        used_S, start_S = np.unique(source_N[order_N], return_index=True)
        for source, at_N in zip(used_S.tolist(), np.split(order_N, start_S[1:]), strict=True):
            table = self._feeds[source].rows
            rows_NF[at_N] = table.values_NF[row_N[at_N]]
            spans_N[at_N] = table.spans_N[row_N[at_N]]
        return _pieces_of(source_N, rows_NF, spans_N, first_N, tokens_N, self._shape.step)


def _pieces_of(
    source_N: Int64Array, rows_NF: Int64Array, spans_N: ObjectArray, first_N: Int64Array, tokens_N: Int64Array,
    step: int,
) -> PieceTable:  # fmt: skip
    sample_N = rows_NF[:, r.TOKENS]
    columns = [source_N, *(rows_NF[:, c] for c in (r.EPOCH, r.LANE, r.SHARD, r.BLOCK, r.POS))]
    columns += [first_N, tokens_N, sample_N, rows_NF[:, r.VALID], np.full(len(source_N), step)]
    values_NP = np.stack(columns, axis=1)
    for i in np.flatnonzero(tokens_N != sample_N):
        first, tokens, sample = int(first_N[i]), int(tokens_N[i]), int(sample_N[i])
        values_NP[i, VALID] = count_valid(spans_N[i], first, first + tokens, sample)
    return PieceTable(values_NP=values_NP, spans_N=spans_N)
