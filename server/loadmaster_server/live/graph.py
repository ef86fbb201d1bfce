"""The data plane as a picture: sources, loaders, constructors, ranks; in groups where there are many."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadmaster_flight.wire.control import ActorView
from loadmaster_flight.wire.errors import NotFoundError

from ..store import Store, StreamKey
from .loads import Load
from .scene import look
from .schemas import EdgeView, GraphView, NodeView, SourceRow
from .sources import SourceModel
from .stages import Stage, Stages
from .step_log import StepLog
from .watch import LiveWatch

MAX_ALONE = 24
"""Of one kind more than this come in groups."""
GROUP_SIZE = 32
_BAD = ("failing", "silent", "slow", "unknown")
_STATES = {"failing": "failing", "retrying": "slow", "unserved": "unknown"}
_FAMILY = re.compile(r"[\W_]*\d.*$|[\W_].*$")


@dataclass(frozen=True, slots=True)
class _Place:
    """In which node a stage is shown, and whether that is a group."""

    node: str
    is_group: bool


class GraphModel:
    """Reads the graph. Any thread may call it.

    Args:
        actors: Who is alive.
    """

    def __init__(
        self, store: Store, log: StepLog, watch: LiveWatch, sources: SourceModel, actors: Callable[[], list[ActorView]]
    ) -> None:
        self._store, self._log, self._watch, self._sources, self._actors = store, log, watch, sources, actors

    def read(self, key: StreamKey, window_s: float, expand: str | None) -> GraphView:
        """The graph of a stream.

        Args:
            expand: A group to have in parts.

        Raises:
            NotFoundError: No such run, stream or group.
        """
        scene = look(self._store, self._log, self._watch, key, window_s)
        rows, rates_S = self._sources.rows(scene), scene.rates_S
        stages = Stages(self._store, self._watch, scene, self._actors(), rates_S)
        loaders, pairs, planner = stages.loaders(rows), stages.constructors(), stages.planner()
        picture = _Picture(rows, rates_S, loaders, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        nodes, edges = picture.draw(planner, expand)
        return GraphView(
            **scene.place,
            window_s=scene.window_s,
            nodes=nodes,
            edges=edges,
            expanded=expand,
            groups=picture.groups,
        )


class _Picture:
    """Puts stages into nodes, and what flows between them into edges."""

    def __init__(
        self,
        rows: Sequence[SourceRow],
        rates_S: np.ndarray | None,
        loaders: Sequence[Stage],
        constructors: Sequence[Stage],
        ranks: Sequence[Stage],
    ) -> None:
        self._rates_S, self._loaders, self._constructors, self._ranks = rates_S, loaders, constructors, ranks
        self._sources = [_source_stage(i, row, rates_S) for i, row in enumerate(rows)]
        self._names = [row.name for row in rows]

    @property
    def groups(self) -> list[str]:
        """What can be expanded."""
        places = [*self._source_places(), *self._numbered(self._loaders, "loaders")]
        places += [*self._numbered(self._constructors, "constructors"), *self._numbered(self._ranks, "ranks")]
        return list(dict.fromkeys(place.node for place in places if place.is_group))

    def draw(self, planner: Stage, expand: str | None) -> tuple[list[NodeView], list[EdgeView]]:
        """Nodes and edges."""
        if expand is not None and expand not in self.groups:
            raise NotFoundError(f"expand must be one of {self.groups}, got {expand!r}")
        sides = [
            (self._sources, self._source_places()),
            (self._loaders, self._numbered(self._loaders, "loaders")),
            (self._constructors, self._numbered(self._constructors, "constructors")),
            (self._ranks, self._numbered(self._ranks, "ranks")),
        ]
        shown = [[_opened(stage, place, expand) for stage, place in zip(*side, strict=True)] for side in sides]
        nodes = [_node(planner, None)]
        for (stages, _), places in zip(sides, shown, strict=True):
            nodes += _nodes(stages, places, expand)
        sources, loaders, constructors, ranks = ([place.node for place in places] for places in shown)
        edges = [*self._from_sources(sources, loaders), *self._to_constructors(loaders, constructors)]
        edges += [_edge(planner.id, node, None) for node in dict.fromkeys(constructors)]
        edges += _summed(
            (at, to, stage.rate) for at, to, stage in zip(constructors, ranks, self._constructors, strict=True)
        )
        return nodes, edges

    def _source_places(self) -> list[_Place]:
        if len(self._names) <= MAX_ALONE:
            return [_Place(stage.id, False) for stage in self._sources]
        families = [_FAMILY.sub("", name) or name for name in self._names]
        if len(set(families)) > MAX_ALONE:
            families = [f"{self._names[i // GROUP_SIZE * GROUP_SIZE]}..." for i in range(len(self._names))]
        return [_Place(f"sources:{family}", True) for family in families]

    def _numbered(self, stages: Sequence[Stage], name: str) -> list[_Place]:
        if len(stages) <= MAX_ALONE:
            return [_Place(stage.id, False) for stage in stages]
        size = max(GROUP_SIZE, -(-len(stages) // MAX_ALONE))
        bounds = [(i // size * size, min(len(stages), i // size * size + size) - 1) for i in range(len(stages))]
        return [_Place(f"{name}:{first}-{last}", True) for first, last in bounds]

    def _from_sources(self, sources: Sequence[str], loaders: Sequence[str]) -> list[EdgeView]:
        """Exact where one loader alone has a source; otherwise the plan does not say through whom it gives."""
        num_owners = np.bincount([i for stage in self._loaders for i in stage.sources], minlength=len(sources))
        flows = []
        for stage, node in zip(self._loaders, loaders, strict=True):
            for i in stage.sources:
                flows.append((sources[i], node, self._sources[i].rate if num_owners[i] == 1 else None))
        return _summed(flows)

    def _to_constructors(self, loaders: Sequence[str], constructors: Sequence[str]) -> list[EdgeView]:
        """Exact where there is one of either; otherwise nobody counts who gets how much of whom."""
        flows = []
        for loader, at in zip(self._loaders, loaders, strict=True):
            for constructor, to in zip(self._constructors, constructors, strict=True):
                rate = constructor.rate if len(self._loaders) == 1 else None
                flows.append((at, to, loader.rate if len(self._constructors) == 1 else rate))
        return _summed(flows)


def _source_stage(i: int, row: SourceRow, rates_S: np.ndarray | None) -> Stage:
    verdicts = row.verdicts
    left_out = verdicts.bad + verdicts.skipped + verdicts.over_long + verdicts.masked
    detail = f"{row.state}, share {row.weight:.2%}" + (f", {left_out} left out" if left_out else "")
    return Stage(
        id=f"source:{row.name}",
        kind="source-group",
        label=row.name,
        queue_fill=None,
        load=None,
        rate=float(rates_S[i]) if rates_S is not None and i < len(rates_S) else None,
        errors=row.errors or 0,
        state=_STATES.get(row.state, "ok"),
        detail=f"{detail}: {row.last_error[:120]}" if row.state == "failing" else detail,
    )


def _opened(stage: Stage, place: _Place, expand: str | None) -> _Place:
    return _Place(stage.id, False) if place.node == expand else place


def _nodes(stages: Sequence[Stage], places: Sequence[_Place], expand: str | None) -> list[NodeView]:
    members: dict[str, list[Stage]] = defaultdict(list)
    groups = {place.node for place in places if place.is_group}
    for stage, place in zip(stages, places, strict=True):
        members[place.node].append(stage)
    return [
        _node(_merged(node, inside), node, members=len(inside)) if node in groups else _node(inside[0], None)
        for node, inside in members.items()
    ]


def _merged(node: str, stages: Sequence[Stage]) -> Stage:
    """A group: sums, means, and the worst state."""
    states = [stage.state for stage in stages]
    worst = next((state for state in _BAD if state in states), "ok")
    ill = [stage.label for stage in stages if stage.state == worst and worst != "ok"]
    fills = [stage.queue_fill for stage in stages if stage.queue_fill is not None]
    rates = [stage.rate for stage in stages if stage.rate is not None]
    return replace(
        stages[0],
        id=node,
        label=f"{node.split(':', 1)[1]} ({len(stages)})",
        queue_fill=round(sum(fills) / len(fills), 3) if fills else None,
        load=_mean_load([stage.load for stage in stages if stage.load is not None]),
        rate=sum(rates) if len(rates) == len(stages) else None,
        errors=sum(stage.errors for stage in stages),
        state=worst,
        detail=f"{len(ill)} {worst}: {', '.join(ill[:3])}" if ill else f"{len(stages)} together",
    )


def _mean_load(loads: Sequence[Load]) -> Load | None:
    if not loads:
        return None
    busy, blocked, idle = (
        round(sum(getattr(load, kind) for load in loads) / len(loads), 4) for kind in ("busy", "blocked", "idle")
    )
    return Load(busy=busy, blocked=blocked, idle=idle, window_s=max(load.window_s for load in loads))


def _node(stage: Stage, group: str | None, members: int = 1) -> NodeView:
    return NodeView.model_validate(
        {
            "id": stage.id,
            "kind": stage.kind,
            "label": stage.label,
            "group": group,
            "members": members,
            "queue_fill": stage.queue_fill,
            "busy": stage.load.busy if stage.load else None,
            "blocked": stage.load.blocked if stage.load else None,
            "idle": stage.load.idle if stage.load else None,
            "rate": None if stage.rate is None else round(stage.rate, 1),
            "errors": stage.errors,
            "state": stage.state,
            "detail": stage.detail,
        }
    )


def _summed(flows: Iterable[tuple[str, str, float | None]]) -> list[EdgeView]:
    """One edge a pair of nodes; its rate is null where a part of it is not known."""
    found: dict[tuple[str, str], float | None] = {}
    for at, to, rate in flows:
        before = found.get((at, to), 0.0)
        found[at, to] = None if before is None or rate is None else before + rate
    return [_edge(at, to, rate) for (at, to), rate in found.items()]


def _edge(at: str, to: str, rate: float | None) -> EdgeView:
    return EdgeView.model_validate({"from": at, "to": to, "rate": None if rate is None else round(rate, 1)})
