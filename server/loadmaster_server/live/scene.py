"""What every read model begins with: the stream as it stands, and the window that its numbers are taken over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadmaster_flight.wire.waiting import SILENT_S

from ..store import Definition, GenerationRecord, Store, StreamKey, Timeline
from .pace import Stretch
from .ranks import Int64Array, RankSnapshot
from .schemas import SkewView
from .step_log import StepLog, StepNumbers
from .watch import LiveWatch

PLAN_STEPS = 64
"""What plans say is taken over so many steps at most: the last ones of the window."""
STATES = ("ok", "behind", "silent", "left", "unheard", "passive")
OK, BEHIND, SILENT, LEFT, UNHEARD, PASSIVE = range(len(STATES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A stream at a moment.

    Attributes:
        generation: The newest; None before anyone joined.
        stretch: The steps that were acknowledged in the window; None while it does not move, or nothing is known yet.
        numbers: Of the last acknowledged steps of the window, at most `PLAN_STEPS`; where there is no window, of the
            last acknowledged steps.
        rates_S: Tokens a second of each source, in the window; None where there is none.
    """

    key: StreamKey
    at: float
    definition: Definition
    generation: GenerationRecord | None
    timeline: Timeline
    stretch: Stretch | None
    numbers: list[StepNumbers]
    rates_S: np.ndarray | None

    @property
    def place(self) -> dict[str, Any]:
        """Fields of `StreamPlace`."""
        number = self.generation.key.generation if self.generation else -1
        return {"run": self.key.run, "stream": self.key.stream, "generation": number, "at": round(self.at, 3)}

    @property
    def window_s(self) -> float | None:
        return round(self.stretch.window_s, 3) if self.stretch else None

    @property
    def coords(self) -> dict[str, Int64Array]:
        """Axis -> coordinate of every rank."""
        return {} if self.generation is None else self.generation.coords

    @property
    def planned(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Cost (over the mean of all) and tokens a step of each dp rank, (D,), means over `numbers`; None where no step
        keeps them by rank."""
        dp = self.generation.dp if self.generation else 0
        exact = [n for n in self.numbers if len(n.cost_R) == n.num_ranks == dp > 0]
        if not exact:
            return None
        return np.mean([n.cost_R for n in exact], axis=0), np.mean([n.tokens_R for n in exact], axis=0)

    @property
    def tokens_per_s(self) -> float | None:
        """Of all sources together, in the window."""
        return None if self.rates_S is None else float(self.rates_S.sum())


def look(store: Store, log: StepLog, watch: LiveWatch, key: StreamKey, window_s: float) -> Scene:
    """The stream now.

    Raises:
        NotFoundError: No such run or stream.
    """
    definition = store.runs.definition(key.run)
    generation = store.generations.newest(key)
    stretch = watch.pace.stretch(generation.key, window_s) if generation else None
    numbers: list[StepNumbers] = []
    if generation is not None:
        first = stretch.first if stretch else 0
        last = generation.acknowledged
        numbers = log.read(generation, max(first, last - PLAN_STEPS), last)
    return Scene(
        key=key,
        at=time.time(),
        definition=definition,
        generation=generation,
        timeline=store.schedules.timeline(key.run),
        stretch=stretch,
        numbers=numbers,
        rates_S=_rates(log, generation, stretch) if generation and stretch else None,
    )


def _rates(log: StepLog, generation: GenerationRecord, stretch: Stretch) -> np.ndarray | None:
    last = log.one(generation, stretch.last - 1)
    before = log.one(generation, stretch.first - 1) if stretch.first else None
    if last is None or (before is None and stretch.first):
        return None
    begin_S = before.total_tokens_S if before is not None else np.zeros(0, np.int64)
    begin_S = np.append(begin_S, np.zeros(len(last.total_tokens_S) - len(begin_S), np.int64))
    return np.asarray((last.total_tokens_S - begin_S) / stretch.window_s)


def rank_states(scene: Scene, snapshot: RankSnapshot) -> Int64Array:
    """Index into `STATES` of every rank."""
    acknowledged_W = snapshot.acknowledged_W
    furthest = int(acknowledged_W[snapshot.is_heard_W].max()) if snapshot.is_heard_W.any() else 0
    with np.errstate(invalid="ignore"):
        is_silent_W = snapshot.seen_s_W >= SILENT_S
        is_behind_W = (acknowledged_W < furthest) & (snapshot.moved_s_W >= SILENT_S)
    conditions = [
        is_passive(scene, len(acknowledged_W)),
        ~snapshot.is_heard_W,
        snapshot.has_left_W,
        is_silent_W,
        is_behind_W,
    ]
    return np.select(conditions, [PASSIVE, UNHEARD, LEFT, SILENT, BEHIND], OK)


def behind(snapshot: RankSnapshot) -> Int64Array:
    """Steps that each rank is behind the one that is furthest; 0 for those that were never heard of."""
    heard_W = snapshot.is_heard_W
    furthest = int(snapshot.acknowledged_W[heard_W].max()) if heard_W.any() else 0
    return np.where(heard_W, furthest - snapshot.acknowledged_W, 0)


def is_passive(scene: Scene, num_ranks: int) -> np.ndarray:
    """Which ranks do not fetch: others hand them their batches."""
    if scene.generation is None:
        return np.zeros(num_ranks, bool)
    return ~scene.generation.fetching(scene.definition.spec.mesh.tp_mode)


def mean_waits(scene: Scene, snapshot: RankSnapshot) -> np.ndarray:
    """Mean wait for a step in the window, of every rank; nan where none is known."""
    if scene.stretch is None:
        return np.full(len(snapshot.acknowledged_W), np.nan)
    return nan_mean(snapshot.waits(scene.stretch.first, scene.stretch.last), axis=1)


def nan_mean(values: np.ndarray, *, axis: int) -> np.ndarray:
    """Mean of what is known; nan where nothing is."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def skew_of(scene: Scene, wait_W: np.ndarray) -> SkewView:
    """Largest over mean."""
    cost_D, tokens_D = scene.planned or (np.zeros(0), np.zeros(0))
    return SkewView(cost=_skew(cost_D), tokens=_skew(tokens_D), wait=_skew(wait_W[~np.isnan(wait_W)]))


def _skew(values: np.ndarray) -> float | None:
    if not len(values) or values.mean() <= 0:
        return None
    return round(float(values.max() / values.mean()), 4)


def rounded(values: np.ndarray, digits: int = 4) -> list[float | None]:
    """As JSON: nan is null."""
    whole = np.round(values.astype(np.float64), digits)
    return [None if is_unknown else value for value, is_unknown in zip(whole.tolist(), np.isnan(whole), strict=True)]


def significant(value: float | None, digits: int = 2) -> float | None:
    """To so many significant digits: what changes less is no news."""
    return None if value is None else float(f"{value:.{digits}g}")
