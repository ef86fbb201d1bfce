"""HTTP of what the console's screens read."""

from __future__ import annotations

import time
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query

from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.wire.http import API

from ..access import Role, needs
from ..store import StreamKey
from .event_schemas import LiveEvents
from .event_stream import EventStream
from .hub import Topic
from .pace import MAX_WINDOW_S, WINDOW_S
from .schemas import BalanceView, CheckpointsView, GraphView, MeshView, OverviewView, SourcesView
from .service import LiveService
from .sources import SourceQuery

VIEWS = [needs(Role.VIEWER)]
Window = Annotated[float, Query(ge=1, le=MAX_WINDOW_S, description="Seconds that rates and waits are taken over.")]


def live_routes(live: LiveService) -> APIRouter:
    """The routes of the read models, and of the events."""
    router = APIRouter(prefix=API, tags=["live"])
    _add_plane(router, live)
    _add_history(router, live)
    _add_events(router, live)
    return router


def _add_plane(router: APIRouter, live: LiveService) -> None:
    @router.get("/runs/{run}/overview", dependencies=VIEWS)
    def read_overview(run: str, stream: str = TRAIN, window: Window = WINDOW_S) -> OverviewView:
        """Where a stream is, how fast, and who holds it up."""
        return live.overview.read(StreamKey(run=run, stream=stream), window)

    @router.get("/runs/{run}/graph", dependencies=VIEWS)
    def read_live_graph(
        run: str, stream: str = TRAIN, window: Window = WINDOW_S, expand: str | None = None
    ) -> GraphView:
        """The data plane with its loads; many of a kind come in groups, one of which can be expanded."""
        return live.graph.read(StreamKey(run=run, stream=stream), window, expand)

    @router.get("/runs/{run}/mesh", dependencies=VIEWS)
    def read_mesh(run: str, stream: str = TRAIN, window: Window = WINDOW_S) -> MeshView:
        """Every rank."""
        return live.mesh.read(StreamKey(run=run, stream=stream), window)

    @router.get("/runs/{run}/sources/health", dependencies=VIEWS)
    def read_health(
        run: str,
        stream: str = TRAIN,
        window: Window = WINDOW_S,
        state: str = "",
        q: str = "",
        after: str = "",
        limit: int = 200,
    ) -> SourcesView:
        """How each source is read, and what is wrong with it; by name, a page at a time."""
        query = SourceQuery(state=state, text=q, after=after, limit=limit)
        return live.sources.read(StreamKey(run=run, stream=stream), query, window)


def _add_history(router: APIRouter, live: LiveService) -> None:
    @router.get("/runs/{run}/balance", dependencies=VIEWS)
    def read_balance(
        run: str,
        stream: str = TRAIN,
        first: Annotated[int | None, Query(alias="from")] = None,
        last: Annotated[int | None, Query(alias="to")] = None,
        sources: str = "",
        step: int | None = None,
    ) -> BalanceView:
        """Planned against served shares, and costs by rank; by default of the last steps that are bound.

        `step`: whose dp ranks are told too; -1: the last one's.
        """
        names = [name for name in sources.split(",") if name]
        key = StreamKey(run=run, stream=stream)
        return live.balance.read(key, first=first, last=last, sources=names, step=step, at=time.time())

    @router.get("/runs/{run}/checkpoints", dependencies=VIEWS)
    def read_checkpoints(run: str, stream: str = TRAIN, before: int = 0, limit: int = 50) -> CheckpointsView:
        """The planner's checkpoints, newest first; `before`: how many to leave out."""
        return live.checkpoints.read(StreamKey(run=run, stream=stream), before=before, limit=limit)


def _add_events(router: APIRouter, live: LiveService) -> None:
    @router.get(
        "/events",
        status_code=200,
        response_class=EventStream,
        dependencies=VIEWS,
        responses={200: {"model": LiveEvents}},
    )
    async def read_events(run: str | None = None, stream: str = TRAIN) -> EventStream:
        """Server-sent events: what changes, of a run, or without one of all runs. See LiveEvents.

        First comes `hello`: read everything again then. `Last-Event-ID` is not needed.
        """
        topic = Topic(run, stream)
        await run_sync(live.check, topic)
        events = live.subscribe(topic)
        try:
            await run_sync(live.prepare, topic)
        except BaseException:
            events.abandon()
            raise
        return events
