"""One page on how a stream is: where it is, how fast, who holds it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loadmaster_flight.wire.control import ActorView, StreamView

from ..store import Store, StreamKey
from .checkpoints import CheckpointModel
from .ranks import RankSnapshot
from .scene import OK, PASSIVE, STATES, Scene, behind, look, nan_mean, rank_states, rounded, skew_of
from .schemas import OverviewView, RankLine, Stall, StepWaits
from .sources import SourceModel, unhealthiest
from .stages import Stages, most_loaded
from .step_log import StepLog
from .watch import LiveWatch

LAST_STEPS = 120
TOP = 5


class OverviewModel:
    """Reads the overview. Any thread may call it.

    Args:
        streams: How a stream stands, as processes and the shell see it.
        actors: Who is alive.
    """

    def __init__(
        self,
        store: Store,
        log: StepLog,
        watch: LiveWatch,
        sources: SourceModel,
        checkpoints: CheckpointModel,
        *,
        streams: Callable[[StreamKey], StreamView],
        actors: Callable[[], list[ActorView]],
    ) -> None:
        self._store, self._log, self._watch = store, log, watch
        self._sources, self._checkpoints, self._streams, self._actors = sources, checkpoints, streams, actors

    def read(self, key: StreamKey, window_s: float) -> OverviewView:
        """How a stream is.

        Raises:
            NotFoundError: No such run or stream.
        """
        view, scene = self._streams(key), look(self._store, self._log, self._watch, key, window_s)
        rows, rates_S = self._sources.rows(scene), scene.rates_S
        stages = Stages(self._store, self._watch, scene, self._actors(), rates_S)
        generation, snapshot, wait_W = scene.generation, stages.snapshot, stages.wait_W
        pace = pace_of(scene, snapshot)
        return OverviewView(
            **scene.place,
            state=view.state,
            reason=view.reason,
            waiting_text=view.waiting_text,
            waiting_for=view.waiting_for[:64],
            acknowledged=view.acknowledged,
            bound=view.bound,
            planned=view.planned,
            end_step=generation.end_step if generation else None,
            num_ranks=generation.world_size if generation else 0,
            tokens=tokens_of(scene),
            tokens_per_s=None if rates_S is None else round(float(rates_S.sum()), 1),
            **pace,
            window_s=scene.window_s,
            fill=_ratio([(n.num_tokens, n.capacity) for n in scene.numbers]),
            occupancy=_ratio([(n.aligned_tokens, n.capacity) for n in scene.numbers]),
            waits=step_waits(snapshot, view.acknowledged),
            skew=skew_of(scene, wait_W),
            slowest_ranks=_slowest(scene, snapshot, wait_W),
            loaded_stages=most_loaded(
                [stages.planner(), *stages.loaders(rows), *(c for c, _ in stages.constructors())]
            ),
            unhealthy_sources=unhealthiest(rows, TOP),
            revision=scene.timeline.newest.number,
            revision_in_force=scene.timeline.at(view.acknowledged).number,
            last_checkpoint=self._checkpoints.newest(key),
            stalls=[
                Stall(from_at=s.from_at, until_at=s.until_at, step=s.step, text=s.text)
                for s in self._watch.stalls.of(key)
            ],
            watched_since=self._watch.since,
        )


def tokens_of(scene: Scene) -> int | None:
    """Of all acknowledged steps of the lineage."""
    if scene.generation is None or not scene.generation.acknowledged:
        return 0
    return int(scene.numbers[-1].total_tokens_S.sum()) if scene.numbers else None


def pace_of(scene: Scene, snapshot: RankSnapshot) -> dict[str, Any]:
    """step_s, wait_s and wait_share."""
    stretch = scene.stretch
    if stretch is None:
        return {"step_s": None, "wait_s": None, "wait_share": None}
    longest_T = _longest(snapshot.waits(stretch.first, stretch.last))
    known_T = longest_T[~np.isnan(longest_T)]
    wait_s = float(known_T.mean()) if len(known_T) else None
    share = None if wait_s is None else round(min(1.0, wait_s / stretch.step_s), 4)
    return {
        "step_s": round(stretch.step_s, 4),
        "wait_s": None if wait_s is None else round(wait_s, 4),
        "wait_share": share,
    }


def step_waits(snapshot: RankSnapshot, acknowledged: int, num_steps: int = LAST_STEPS) -> StepWaits:
    """Of the last steps that all ranks have acknowledged."""
    first = max(0, acknowledged - num_steps)
    keep_T = (snapshot.step_T >= first) & (snapshot.step_T < acknowledged)
    wait_WT = snapshot.wait_WT[:, keep_T]
    return StepWaits(
        step=snapshot.step_T[keep_T].tolist(),
        max_s=rounded(_longest(wait_WT)),
        mean_s=rounded(nan_mean(wait_WT, axis=0)),
        num_ranks=(~np.isnan(wait_WT)).sum(axis=0).tolist(),
    )


def _longest(wait_WT: np.ndarray) -> np.ndarray:
    """Of each step; nan where no rank has said."""
    if not len(wait_WT):
        return np.full(wait_WT.shape[1], np.nan)
    longest_T = np.where(np.isnan(wait_WT), -1.0, wait_WT).max(axis=0)
    return np.where(longest_T < 0, np.nan, longest_T)


def _slowest(scene: Scene, snapshot: RankSnapshot, wait_W: np.ndarray) -> list[RankLine]:
    """Ranks that hold the others up first, then those that wait longest."""
    if scene.generation is None:
        return []
    state_W, behind_W = rank_states(scene, snapshot), behind(snapshot)
    known_W = np.where(np.isnan(wait_W), 0.0, wait_W)
    order = np.lexsort((np.arange(len(state_W)), -known_W, -behind_W, state_W == OK))
    found = [rank for rank in order.tolist() if state_W[rank] != PASSIVE and snapshot.is_heard_W[rank]]
    return [
        RankLine(
            rank=rank,
            behind=int(behind_W[rank]),
            wait_s=None if np.isnan(wait_W[rank]) else round(float(wait_W[rank]), 4),
            seen_s=round(float(snapshot.seen_s_W[rank]), 1),
            state=STATES[state_W[rank]],
        )
        for rank in found[:TOP]
    ]


def _ratio(pairs: list[tuple[int | None, int | None]]) -> float | None:
    """Sum over sum, of the steps that know both."""
    known = [(value, whole) for value, whole in pairs if value is not None and whole]
    return round(sum(v for v, _ in known) / sum(w for _, w in known), 4) if known else None
