"""The stages of a stream's data plane, each with its load: what the graph shows and the overview ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadmaster_flight.wire.control import ActorView, Role

from ..store import GenerationKey, Store, StreamKey
from .loads import Load
from .ranks import NOBODY
from .scene import Scene, mean_waits
from .schemas import SourceRow, StageLine
from .watch import LiveWatch

SILENT_ACTOR_S = 3.0
PLANNER = "planner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A loader, a constructor, the ranks that it serves, or the plan loop. Fields are as in `NodeView`."""

    id: str
    kind: str
    label: str
    queue_fill: float | None
    load: Load | None
    rate: float | None
    errors: int
    state: str
    detail: str
    sources: tuple[int, ...] = ()
    """Of a loader."""
    """Of a loader: it alone has the sources that it has."""


def planner_name(key: StreamKey) -> str:
    """Under which the plan loop's seconds are kept."""
    return f"plan {key}"


class Stages:
    """Reads the stages of a scene.

    Args:
        scene: The stream.
        actors: Who is alive.
        rates_S: Tokens a second of each source; None: not known.

    Attributes:
        snapshot: The ranks.
        wait_W: Mean wait of each rank in the window.
    """

    def __init__(
        self, store: Store, watch: LiveWatch, scene: Scene, actors: Sequence[ActorView], rates_S: np.ndarray | None
    ) -> None:
        self._store, self._watch, self._scene, self._actors = store, watch, scene, actors
        self._rates_S = rates_S
        generation = scene.generation
        self.snapshot = watch.ranks.snapshot(generation.key, generation.world_size) if generation else NOBODY
        self.wait_W = mean_waits(scene, self.snapshot)
        self._tokens_D = scene.planned[1] if scene.planned else None
        self._dp_W = scene.coords.get("dp", np.zeros(0, np.int64))

    def planner(self) -> Stage:
        """The plan loop."""
        generation, budgets = self._scene.generation, self._scene.definition.spec.budgets
        ahead = generation.planned - generation.acknowledged if generation else None
        fill = None if ahead is None else min(1.0, ahead / max(1, budgets.plan_ahead))
        says = "" if ahead is None else f"{ahead} steps planned ahead of {budgets.plan_ahead}"
        if generation is not None and generation.end_step is not None:
            says += f", all {generation.end_step} steps are planned"
        is_bad = generation is not None and generation.state.value in ("failed", "paused")
        return Stage(
            id=PLANNER,
            kind="planner",
            label="planner",
            queue_fill=None if fill is None else round(fill, 3),
            load=self._watch.loads.load(planner_name(self._scene.key)),
            rate=None,
            errors=int(is_bad),
            state="failing" if is_bad else "ok",
            detail=(generation.reason if generation and generation.reason else says),
        )

    def loaders(self, rows: Sequence[SourceRow]) -> list[Stage]:
        """Those that own sources of the run."""
        owned: dict[str, dict[int, None]] = defaultdict(dict)
        owners: dict[int, set[str]] = defaultdict(set)
        for route in self._store.actors.routes(self._scene.key.run):
            for source, _, _ in route.partitions:
                owned[route.address][source] = None
                owners[source].add(route.address)
        shared = {source for source, who in owners.items() if len(who) > 1}
        found = [actor for actor in self._actors if actor.role is Role.LOADER and actor.address in owned]
        return [self._loader(actor, tuple(owned[actor.address]), shared, rows) for actor in found]

    def _loader(self, actor: ActorView, sources: tuple[int, ...], shared: set[int], rows: Sequence[SourceRow]) -> Stage:
        is_sole = not shared & set(sources)
        rates_S = self._rates_S  # a source that was added since the window began has none
        own = [i for i in sources if rates_S is not None and i < len(rates_S)]
        rate = float(rates_S[own].sum()) if rates_S is not None and is_sole else None
        ill = [rows[i].name for i in sources if rows[i].state in ("failing", "retrying")]
        budget = self._scene.definition.spec.budgets.window_bytes
        held = actor.stats.get("window_bytes")
        return Stage(
            id=actor.actor_id,
            kind="loader",
            label=actor.actor_id,
            queue_fill=None if held is None else round(min(1.0, held / max(1, budget)), 3),
            load=self._watch.loads.load(actor.actor_id),
            rate=rate,
            errors=sum(rows[i].errors or 0 for i in sources),
            state=_actor_state(actor, is_ill=bool(ill)),
            detail=f"{len(sources)} sources at {actor.address}" + (f"; failing: {', '.join(ill[:3])}" if ill else ""),
            sources=sources,
        )

    def constructors(self) -> list[tuple[Stage, Stage]]:
        """Each with the ranks that it serves."""
        generation = self._scene.generation
        if generation is None:
            return []
        ranks = self._served(generation.key)
        budgets = self._scene.definition.spec.budgets
        ahead = max(1, min(budgets.build_ahead, budgets.bind_ahead))
        pairs = []
        for actor in self._actors:
            if actor.role is Role.CONSTRUCTOR and actor.address in ranks:
                pairs.append(self._constructor(actor, ranks[actor.address], ahead))
        return pairs

    def _constructor(self, actor: ActorView, rank_N: np.ndarray, build_ahead: int) -> tuple[Stage, Stage]:
        ready = self._watch.steps_ready(actor.actor_id, self._scene.key)
        rate = self._rate_of(rank_N)
        stage = Stage(
            id=actor.actor_id,
            kind="constructor",
            label=actor.actor_id,
            queue_fill=None if ready is None else round(min(1.0, ready / build_ahead), 3),
            load=self._watch.loads.load(actor.actor_id),
            rate=rate,
            errors=0,
            state=_actor_state(actor, is_ill=False),
            detail=f"{len(rank_N)} ranks at {actor.address}",
        )
        return stage, self._ranks(actor, rank_N, rate)

    def _ranks(self, actor: ActorView, rank_N: np.ndarray, rate: float | None) -> Stage:
        stretch, wait_N = self._scene.stretch, self.wait_W[rank_N]
        known_N = wait_N[~np.isnan(wait_N)]
        share = min(1.0, float(known_N.mean()) / stretch.step_s) if len(known_N) and stretch else None
        heard_N = self.snapshot.is_heard_W[rank_N]
        load = (
            Load(busy=round(1 - share, 4), blocked=0.0, idle=round(share, 4), window_s=stretch.window_s)
            if share is not None and stretch is not None
            else None
        )
        first, last = int(rank_N.min()), int(rank_N.max())
        name = f"ranks {first}-{last}" if len(rank_N) > 1 else f"rank {first}"
        return Stage(
            id=f"ranks-{actor.actor_id}",
            kind="rank-group",
            label=name,
            queue_fill=None,
            load=load,
            rate=rate,
            errors=0,
            state="ok" if heard_N.any() else "unknown",
            detail=f"{len(rank_N)} ranks" + ("" if heard_N.all() else f", {int((~heard_N).sum())} not heard of"),
        )

    def _served(self, key: GenerationKey) -> dict[str, np.ndarray]:
        """Address of a constructor -> its ranks."""
        by_dp = self._store.actors.constructors(key)
        ranks: dict[str, list[int]] = defaultdict(list)
        for rank, dp in enumerate(self._dp_W.tolist()):
            if dp in by_dp:
                ranks[by_dp[dp]].append(rank)
        return {address: np.array(served, np.int64) for address, served in ranks.items()}

    def _rate_of(self, rank_N: np.ndarray) -> float | None:
        """Tokens a second that the dp ranks of these are planned to get."""
        stretch = self._scene.stretch
        if stretch is None or self._tokens_D is None:
            return None
        dps = list(set(self._dp_W[rank_N].tolist()))
        return round(float(self._tokens_D[dps].sum()) / stretch.step_s, 1)


def most_loaded(stages: Sequence[Stage], limit: int = 5) -> list[StageLine]:
    """Stages by how much others may wait for them: the busiest first."""
    known = [stage for stage in stages if stage.load is not None and stage.kind != "rank-group"]
    known.sort(key=lambda stage: -(stage.load.busy if stage.load else 0.0))
    return [
        StageLine(
            node=stage.id,
            label=stage.label,
            kind=stage.kind,
            busy=stage.load.busy if stage.load else None,
            blocked=stage.load.blocked if stage.load else None,
            queue_fill=stage.queue_fill,
            says=_says(stage.load),
        )
        for stage in known[:limit]
    ]


def _says(load: Load | None) -> str:
    if load is None:
        return "it has not said yet"
    kinds: Mapping[str, float] = {
        "works": load.busy, "waits until others take what it has": load.blocked, "waits for work": load.idle
    }  # fmt: skip
    most = max(kinds, key=lambda name: kinds[name])
    return f"{most} {kinds[most]:.0%} of the last {load.window_s:.0f} s"


def _actor_state(actor: ActorView, *, is_ill: bool) -> str:
    if actor.heartbeat_age_s > SILENT_ACTOR_S:
        return "silent"
    return "slow" if is_ill else "ok"
