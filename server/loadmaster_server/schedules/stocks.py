"""What is known of the sources of a run: measured where an epoch was planned, else reckoned from its beginning."""

from __future__ import annotations

from dataclasses import dataclass

from loadmaster_flight.spec import RunSpec, revised
from loadmaster_flight.spec.run import TRAIN

from ..planning.feed import SourceState
from ..planning.planner import PlannerState
from ..planning.rules import SourceRules, rules_of
from ..store import GenerationRecord, SourceCounts, Store, StreamKey, Timeline
from .preview import Stock, step_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a forecast begins with: stocks before step `first`, and how full steps are."""

    first: int
    stocks: list[Stock]
    fill: float


def known_before(store: Store, spec: RunSpec, timeline: Timeline, step: int) -> Known:
    """Stocks before a step, or before the first step that is not planned where that is sooner."""
    newest = store.generations.newest(StreamKey(run=spec.run, stream=TRAIN))
    first = min(step, newest.planned) if newest else 0
    summary = store.plans.lineage_summary(newest, first - 1) if newest and first else None
    placed_S = _padded(summary["total_tokens"] if summary else [], len(spec.source_names))
    fill = 1.0
    if summary:
        batch = revised(spec, timeline.at(first - 1).schedule).batch
        fill = min(1.0, summary["num_tokens"] / max(1, step_tokens(batch, first - 1)))
    states = _states(store, newest)
    rules, counts_S = rules_of(spec, TRAIN).sources, store.runs.counts(spec.run)
    stocks = [  # what was read later may know sources that were added a moment ago: they come last
        _stock(rule, counts, states[s] if s < len(states) else None, placed)
        for s, (rule, counts, placed) in enumerate(zip(rules, counts_S, placed_S, strict=False))
    ]
    return Known(first=first, stocks=stocks, fill=fill)


def _padded(placed_S: list[int], num: int) -> list[int]:
    """Nothing is placed yet of sources that were added since."""
    return [*placed_S, *[0] * (num - len(placed_S))]


def _states(store: Store, newest: GenerationRecord | None) -> tuple[SourceState, ...]:
    found = store.plans.checkpoint(newest.key, newest.planned) if newest else None
    return PlannerState.from_bytes(found[1]).sources if found else ()


def _stock(rule: SourceRules, counts: SourceCounts, state: SourceState | None, placed: int) -> Stock:
    epoch_tokens, samples, is_estimated = counts.epoch_tokens, counts.epoch_samples, False
    tokens: float | None = epoch_tokens
    if tokens is None and counts.num_rows and state is not None and state.counted.num_rows:
        tokens = state.counted.num_tokens / state.counted.num_rows * counts.num_rows
        samples, is_estimated = state.counted.num_samples, True
    mean = (state.counted.num_tokens if is_estimated and state else epoch_tokens or 0) / samples if samples else None
    return Stock(
        name=rule.name,
        epoch_tokens=tokens,
        mean_tokens=mean or None,
        placed_tokens=float(placed),
        max_epochs=rule.max_epochs,
        is_estimated=is_estimated,
    )
