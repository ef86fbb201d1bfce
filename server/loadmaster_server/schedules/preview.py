"""What a schedule would do to the sources until some step: a pure function of schedules and known counts.

# S = sources, K = stretches of steps
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadmaster_flight.spec import BatchSpec, Ramp, RunSpec

MAX_STRETCHES = 1024
"""A longer way is evaluated in the middle of so many stretches. They never cross a knot, up to as many knots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What is known of a source, and what was drawn of it.

    Attributes:
        epoch_tokens: Tokens of one pass; None: not known.
        mean_tokens: Tokens of a sample, which shares of samples need; None: not known.
        placed_tokens: Served before the first step that is looked at.
        max_epochs: Passes that the run allows; None: it repeats for ever.
        is_estimated: `epoch_tokens` is reckoned from the part that was read so far.
    """

    name: str
    epoch_tokens: float | None = None
    mean_tokens: float | None = None
    placed_tokens: float = 0.0
    max_epochs: int | None = None
    is_estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One source until a step. Steps are the first at which it is so; None: never before the last step looked at.

    Attributes:
        tokens: Served from the beginning of the run.
        epochs: Passes, of which the last is rarely whole; None: its size is not known.
        dry_step: It has been served `max_epochs` times and gives no more.
        repeats_step: It has been served more often than the bound.
    """

    source: str
    tokens: float
    epochs: float | None
    dry_step: int | None
    repeats_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A spec for each step: the one of the last pair (first step, spec) that begins at or before it."""

    stretches: tuple[tuple[int, RunSpec], ...]

    def at(self, step: int) -> RunSpec:
        return next(spec for first, spec in reversed(self.stretches) if first <= step or first == self.first)

    @property
    def first(self) -> int:
        return self.stretches[0][0]

    def edges(self) -> set[int]:
        """Steps at which a rule begins to be another one."""
        knots = {knot.at for _, spec in self.stretches for ramp in _ramps(spec) for knot in ramp.knots}
        return knots | {first for first, _ in self.stretches}


def forecast(
    plan: Plan, stocks: Sequence[Stock], first: int, last: int, *, fill: float = 1.0, max_repeats: float | None = None
) -> list[Forecast]:
    """Walk from step `first` to before step `last`.

    A source that is dry leaves its share to the others by their weights, whatever its `on_exhausted` says.

    Args:
        stocks: One for each source of the spec, in order.
        fill: Real tokens of a step, as a share of G * C.
        max_repeats: Passes beyond which a source is said to repeat; None: no bound.
    """
    walk = _Walk(stocks, max_repeats)
    for begin, end in itertools.pairwise(_grid(plan, first, last)):
        middle = (begin + end - 1) // 2
        spec = plan.at(middle)
        walk.go(begin, end, _weights(spec, stocks, middle), step_tokens(spec.batch, middle) * fill)
    return walk.forecasts()


def step_tokens(batch: BatchSpec, step: int) -> int:
    """G * C."""
    return batch.num_bins_at(step) * batch.capacity_at(step)


class _Walk:
    """Tokens of all sources so far."""

    def __init__(self, stocks: Sequence[Stock], max_repeats: float | None) -> None:
        self._stocks = stocks
        self._tokens_S = [stock.placed_tokens for stock in stocks]
        self._limit_S = [_times(stock, stock.max_epochs) for stock in stocks]
        self._bound_S = [_times(stock, max_repeats) for stock in stocks]
        self._dry_S: list[int | None] = [None] * len(stocks)
        self._repeats_S: list[int | None] = [None] * len(stocks)

    def go(self, begin: int, end: int, weights_S: Sequence[float], per_step: float) -> None:
        """From one step to another at constant shares, stopping wherever a source runs dry."""
        at = float(begin)
        while at < end:
            self._note_dry(at)
            live_S = [0.0 if dry is not None else w for w, dry in zip(weights_S, self._dry_S, strict=True)]
            whole = math.fsum(live_S)
            if not whole or not per_step:
                return
            rate_S = [weight / whole * per_step for weight in live_S]
            steps = min(end - at, *(self._steps_left(s, rate) for s, rate in enumerate(rate_S)))
            self._advance(at, steps, rate_S)
            at += steps
        self._note_dry(float(end))

    def _steps_left(self, source: int, rate: float) -> float:
        return (self._limit_S[source] - self._tokens_S[source]) / rate if rate else math.inf

    def _note_dry(self, at: float) -> None:
        for s, limit in enumerate(self._limit_S):
            if self._dry_S[s] is None and self._tokens_S[s] >= limit * (1 - 1e-12):
                self._dry_S[s] = math.floor(at)

    def _advance(self, at: float, steps: float, rate_S: Sequence[float]) -> None:
        for s, rate in enumerate(rate_S):
            before, after = self._tokens_S[s], self._tokens_S[s] + rate * steps
            if self._repeats_S[s] is None and after > self._bound_S[s]:
                self._repeats_S[s] = math.floor(at + max(0.0, self._bound_S[s] - before) / rate if rate else at)
            self._tokens_S[s] = after

    def forecasts(self) -> list[Forecast]:
        return [
            Forecast(
                source=stock.name,
                tokens=tokens,
                epochs=tokens / stock.epoch_tokens if stock.epoch_tokens else None,
                dry_step=dry,
                repeats_step=repeats,
            )
            for stock, tokens, dry, repeats in zip(
                self._stocks, self._tokens_S, self._dry_S, self._repeats_S, strict=True
            )
        ]


def _times(stock: Stock, epochs: float | None) -> float:
    return math.inf if epochs is None or not stock.epoch_tokens else stock.epoch_tokens * epochs


def _weights(spec: RunSpec, stocks: Sequence[Stock], step: int) -> list[float]:
    """Relative shares of tokens; where the run counts samples, by the length of a sample."""
    evaluate = _evaluator(step)
    value_S = [evaluate(spec.mixture.weights.get(stock.name)) for stock in stocks]
    if spec.mixture.unit == "tokens":
        return value_S
    known = [stock.mean_tokens for stock in stocks if stock.mean_tokens]
    usual = math.fsum(known) / len(known) if known else 1.0
    return [value * (stock.mean_tokens or usual) for value, stock in zip(value_S, stocks, strict=True)]


def _evaluator(step: int) -> Callable[[Ramp | None], float]:
    return lambda ramp: 0.0 if ramp is None else ramp.at(step)


def _ramps(spec: RunSpec) -> list[Ramp]:
    return [*spec.mixture.weights.values(), spec.batch.microbatches, spec.batch.seq_len]


def _grid(plan: Plan, first: int, last: int) -> list[int]:
    stride = max(1, math.ceil((last - first) / MAX_STRETCHES))
    inside = sorted(edge for edge in plan.edges() if first < edge < last)
    inside = inside[:: max(1, math.ceil(len(inside) / MAX_STRETCHES))]
    return sorted({*range(first, last, stride), last, *inside}) if last > first else []
