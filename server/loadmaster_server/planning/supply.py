"""How many rows to ask for, so that one round trip feeds several steps. Never decides what a step holds.

# S = sources
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadmaster_flight.spec import Layout

from .demand import Demand
from .feed import SourceFeed
from .mixture import weights_of
from .rules import StreamRules

STEPS_AHEAD, MOST_STEPS_AHEAD = 2, 16
"""Steps whose rows are asked for: the more, the smaller they are, since a round trip costs more than a small step."""
TOKENS_AHEAD = 1 << 15
"""More than two steps are asked for up to so many tokens: to measure them takes no time."""
LEAST_ROWS = 8
"""Asked of a source of which nothing is known yet: of long documents more would delay the first step."""
FEW_ROWS = 64
"""Kept of a source that is drawn from rarely, as far as they are a quarter of a step: with hundreds of sources one of
them would run dry at every step."""
MOST_ROWS = 1 << 20
_GUESSED_TOKENS = 512.0
_MAX_DOUBLINGS = 8


def rows_per_step(feeds: Sequence[SourceFeed], rules: StreamRules, step: int) -> list[float]:
    """Rows that a step is expected to take from each source, shape (S,); from the rows seen so far."""
    weights_S = weights_of(rules.shares_at(step), [not feed.state.is_exhausted for feed in feeds])
    mean_S = [max(1.0, feed.tokens_per_row or _GUESSED_TOKENS) for feed in feeds]
    if rules.counts_samples:
        count_S = [float(weight) for weight in weights_S]
    else:
        count_S = [weight / mean for weight, mean in zip(weights_S, mean_S, strict=True)]
    shape = rules.shape_at(step)
    is_pad = shape.layout is Layout.PAD
    scale = math.fsum(count if is_pad else count * mean for count, mean in zip(count_S, mean_S, strict=True))
    amount = shape.draw_levels[0]
    return [count * amount / scale if scale else 0.0 for count in count_S]


def demands_of(
    feeds: Sequence[SourceFeed], rules: StreamRules, step: int, missing: Sequence[int], num_attempts: int
) -> list[Demand]:
    """Demands that fill every source that runs low up to the rows of the next steps, and those of `missing` anyway.

    Args:
        missing: Sources that the step cannot be planned without.
        num_attempts: How often this step has failed for want of rows: each time twice as many are asked for.
    """
    demands: list[Demand] = []
    shape = rules.shape_at(step)
    room = shape.num_bins * shape.capacity
    steps = min(MOST_STEPS_AHEAD, max(STEPS_AHEAD, TOKENS_AHEAD // room))
    for feed, rows in zip(feeds, rows_per_step(feeds, rules, step), strict=True):
        few = min(FEW_ROWS, int(room / 4 / feed.tokens_per_row)) if feed.tokens_per_row else 0
        wanted = min(MOST_ROWS, max(LEAST_ROWS, few, math.ceil(steps * rows)))
        lacking = wanted - feed.num_buffered
        if feed.source in missing:
            growth = 1 << min(num_attempts, _MAX_DOUBLINGS)
            demands += feed.demands(min(MOST_ROWS, max(lacking, LEAST_ROWS) * growth))
        elif rows and lacking > wanted // 2:
            demands += feed.demands(lacking)
    return demands
