"""HTTP of runs and their streams."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from loadmaster_flight.wire.control import (
    AddSourceRequest,
    CreateRunRequest,
    GenerationView,
    JoinReply,
    JoinRequest,
    LeftOutView,
    RunView,
    SourceView,
    StreamView,
    TicketReply,
    TicketRequest,
    VerdictReport,
)
from loadmaster_flight.wire.http import API

from ..access import Principal, Role, needs
from ..store import StreamKey
from .joining import JoinService
from .service import RunService
from .tickets import TicketOffice

READS = [needs(Role.VIEWER, Role.PROCESS)]
AsPublisher = Annotated[Principal, needs(Role.PUBLISHER)]
BY_PROCESS = [needs(Role.PROCESS)]


def run_routes(runs: RunService, joins: JoinService, tickets: TicketOffice) -> APIRouter:
    """The routes below /api/v1/runs, but for plans."""
    router = APIRouter(prefix=API, tags=["runs"])
    _add_runs(router, runs)
    _add_streams(router, runs, joins, tickets)
    return router


def _add_runs(router: APIRouter, runs: RunService) -> None:
    @router.post("/runs", dependencies=[needs(Role.PUBLISHER, Role.PROCESS)])
    def create_run(request: CreateRunRequest) -> RunView:
        """Freeze a run. The same spec and manifests again: the same answer."""
        return runs.create(request)

    @router.get("/runs", dependencies=READS)
    def list_runs() -> list[RunView]:
        """All runs, by name."""
        return runs.views()

    @router.get("/runs/{run}", dependencies=READS)
    def read_run(run: str) -> RunView:
        """One run."""
        return runs.view(run)

    @router.get("/runs/{run}/sources", dependencies=READS)
    def read_sources(run: str) -> list[SourceView]:
        """The sources of a run, with the counts that are known by now."""
        return runs.sources(run)

    @router.post("/runs/{run}/sources", status_code=201)
    def add_source(who: AsPublisher, run: str, request: AddSourceRequest) -> SourceView:
        """Freeze another source, for revisions to name. The same again: the same answer."""
        return runs.add_source(run, request, who.name)

    @router.get("/runs/{run}/generations", dependencies=READS)
    def read_generations(run: str) -> list[GenerationView]:
        """Every life of the run's streams, oldest first: forks name their parent."""
        return runs.generations(run)

    @router.get("/runs/{run}/definition", dependencies=READS)
    def read_definition(run: str) -> CreateRunRequest:
        """What was frozen."""
        return runs.definition(run)

    @router.post("/runs/{run}/resume")
    def resume_run(who: AsPublisher, run: str) -> RunView:
        """Let a paused or failed run go on."""
        return runs.resume(run, who.name)

    @router.post("/runs/{run}/verdicts", dependencies=BY_PROCESS)
    def report_verdict(run: str, report: VerdictReport) -> dict[str, str]:
        """Journal a sample that is served masked; again is as good as once."""
        runs.report_verdict(run, report)
        return {}


def _add_streams(router: APIRouter, runs: RunService, joins: JoinService, tickets: TicketOffice) -> None:
    @router.get("/runs/{run}/streams/{stream}", dependencies=READS)
    def read_stream(run: str, stream: str) -> StreamView:
        """Where a stream is, and whom it waits for."""
        return runs.stream_view(StreamKey(run=run, stream=stream))

    @router.get("/runs/{run}/streams/{stream}/left-out", dependencies=READS)
    def read_left_out(run: str, stream: str) -> list[LeftOutView]:
        """Samples that the stream does not train on, counted, with the last reason of each verdict."""
        return runs.left_out(StreamKey(run=run, stream=stream))

    @router.post("/runs/{run}/streams/{stream}/join", dependencies=BY_PROCESS)
    def join(run: str, stream: str, request: JoinRequest) -> JoinReply:
        """Ask to take part; repeat until the state is "open"."""
        return joins.join(StreamKey(run=run, stream=stream), request)

    @router.post("/runs/{run}/streams/{stream}/tickets", dependencies=BY_PROCESS)
    def issue_ticket(run: str, stream: str, request: TicketRequest) -> TicketReply:
        """A signed window of steps."""
        return tickets.issue(StreamKey(run=run, stream=stream), request)
