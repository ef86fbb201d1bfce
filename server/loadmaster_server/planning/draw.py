"""Drawing a step's pieces from the sources, by credit.

# N = pieces, S = sources
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadmaster_flight.spec import Layout, OnExhausted
from loadmaster_flight.wire.errors import DataError

from .columns import Int64Array, ObjectArray, is_nothing, join_objects, matrix
from .fair import Drawn, DrawRules, Offers, draw_fairly
from .feed import Head, SourceFeed, Stock
from .lists import Lists
from .mixture import spread_credit, weights_of
from .ordering import stable_order
from .pieces import (
    DRAWN_AT,
    FIRST,
    FROM_ROW,
    NUM_COLUMNS,
    SAMPLE_TOKENS,
    SOURCE,
    TOKENS,
    PieceTable,
    count_parts,
)
from .rows import TAKEN_OVER
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


class _Drawing:
    """One draw in progress."""

    def __init__(
        self, feeds: Sequence[SourceFeed], shares_S: Sequence[int], earlier: Draw, shape: StepShape,
        counts_samples: bool,
    ) -> None:  # fmt: skip
        self._feeds, self._shares_S, self._earlier, self._shape = feeds, shares_S, earlier, shape
        self._rules = DrawRules(
            longest=shape.row_len,
            align=shape.align,
            counts_pieces=shape.layout is Layout.PAD,
            counts_samples=counts_samples,
        )
        self._limits = shape.limits
        self._heads = dict(earlier.heads)
        self._is_live_S = [not self._heads.get(feed.source, feed.state).is_exhausted for feed in feeds]
        self._parts: list[PieceTable] = [earlier.pieces]
        self._is_stopped = False
        self._weigh(earlier.credit_S)

    def _weigh(self, credit_S: Sequence[int]) -> None:
        """Set the weights over the live sources, and hand them the credit of all others."""
        self._now_S = weights_of(self._shares_S, self._is_live_S)
        self._has_sources = any(self._now_S)
        self._credit_S = spread_credit(credit_S, self._now_S) if self._has_sources else list(credit_S)

    def run(self, amount: int) -> None:
        while amount > 0 and self._has_sources and not self._is_stopped:
            sources = [s for s, weight in enumerate(self._now_S) if weight]
            stocks = [self._feeds[s].stock(self._head(s), self._limits) for s in sources]
            offers = self._offers(sources, stocks)
            start_S = offers.place_S.copy()
            drawn = draw_fairly(offers, self._rules, amount)
            starved = [sources[i] for i in drawn.starved]
            amount -= drawn.amount
            self._move(offers, sources, stocks, start_S.tolist())
            ended = self._look_behind(starved)
            self._take(drawn, sources, stocks, start_S)
            if ended is not None:
                self._end(ended)

    def _head(self, source: int) -> Head:
        if source not in self._heads:
            self._heads[source] = self._feeds[source].head()
        return self._heads[source]

    def _offers(self, sources: list[int], stocks: list[Stock]) -> Offers:
        stop_S = np.cumsum([len(stock.tokens_K) for stock in stocks])
        return Offers(
            weight_S=np.array([self._now_S[s] for s in sources], np.int64),
            credit_S=[self._credit_S[s] for s in sources],
            place_S=np.append(0, stop_S[:-1]),
            stop_S=stop_S,
            offset_S=np.array([self._heads[s].offset for s in sources], np.int64),
            tokens_K=np.concatenate([stock.tokens_K for stock in stocks]),
        )

    def _take(self, drawn: Drawn, sources: list[int], stocks: list[Stock], start_S: Int64Array) -> None:
        """Make pieces of what was drawn, in the order drawn."""
        num, source_M = len(drawn.source_M), drawn.source_M
        if not num:
            return
        order_M = stable_order([source_M])
        index_M = (drawn.at_M - start_S[source_M])[order_M]
        stop_S = np.cumsum(np.bincount(source_M, minlength=len(sources)))
        parts, start = [], 0
        for i, stop in enumerate(stop_S.tolist()):
            if stop > start:
                parts.append(self._feeds[sources[i]].samples(stocks[i].places(index_M[start:stop])))
                start = stop
        values_MP = matrix(num, NUM_COLUMNS)
        values_MP[:, SOURCE] = np.array(sources)[source_M]
        values_MP[:, FIRST], values_MP[:, TOKENS], values_MP[:, DRAWN_AT] = (
            drawn.first_M,
            drawn.tokens_M,
            self._shape.step,
        )
        values_MP[order_M, FROM_ROW] = np.concatenate([rows.values_NF[:, TAKEN_OVER].T for rows in parts], axis=1).T
        spans_N = _scattered(join_objects([rows.spans_N for rows in parts]), order_M)
        patches = Lists.concat([rows.patches for rows in parts])
        if not patches.is_nothing:
            patches = patches.take(np.argsort(order_M))
        pieces = PieceTable(values_NP=values_MP, spans_N=spans_N, patches=patches)
        count_parts(pieces, np.flatnonzero(drawn.tokens_M != values_MP[:, SAMPLE_TOKENS]))
        self._parts.append(pieces)

    def _move(self, offers: Offers, sources: list[int], stocks: list[Stock], before_S: list[int]) -> None:
        """Set heads and credits to where the draw has come."""
        after = zip(sources, stocks, before_S, offers.place_S.tolist(), offers.offset_S.tolist(), strict=True)
        for source, stock, before, place, offset in after:
            head = self._heads[source]
            if place != before or offset != head.offset:
                self._heads[source] = self._feeds[source].advanced(head, stock, place - before, offset)
        for source, credit in zip(sources, offers.credit_S, strict=True):
            self._credit_S[source] = credit

    def _look_behind(self, starved: list[int]) -> int | None:
        """See why due sources have nothing to draw from; returns the first one if it is exhausted.

        Raises:
            MissingRowsError: Rows must be measured.
        """
        missing: list[int] = []
        for source in starved:
            if not self._feeds[source].peek(self._heads[source], self._limits) and not missing:
                return source
            missing.append(source)
        if missing:
            raise MissingRowsError(missing)
        return None

    def _end(self, source: int) -> None:
        """The source is exhausted: do what its rule says."""
        rules = self._feeds[source].rules
        if rules.on_exhausted is OnExhausted.ERROR:
            raise DataError(
                f"source {rules.name} is exhausted after max_epochs {rules.max_epochs} at step {self._shape.step}, "
                "and its on_exhausted is error",
                source=rules.name,
            )
        self._heads[source] = self._feeds[source].exhausted(self._heads[source])
        self._is_live_S[source] = False
        self._is_stopped |= rules.on_exhausted is OnExhausted.STOP
        self._weigh(self._credit_S)

    def result(self) -> Draw:
        return Draw(
            pieces=PieceTable.concat(self._parts),
            credit_S=self._credit_S,
            weights_S=self._earlier.weights_S,
            heads=self._heads,
            has_ended=self._is_stopped or not self._has_sources,
        )


def _scattered(objects_M: ObjectArray, order_M: Int64Array) -> ObjectArray:
    if is_nothing(objects_M):
        return objects_M
    scattered_M = np.empty_like(objects_M)
    scattered_M[order_M] = objects_M
    return scattered_M
