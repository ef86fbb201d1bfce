"""HTTP of plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Header, Response

from loadmaster_flight.wire.http import API

from ..access import Role, needs
from ..store import GenerationKey, StreamKey
from .graph import GraphService, StepGraph
from .query import parse_query
from .service import PlanAnswer, PlanService

ARROW_STREAM = "application/vnd.apache.arrow.stream"
PLANS = "/runs/{run}/streams/{stream}/generations/{generation}/plans"
STREAM_END = "x-loadmaster-stream-end"
"""Exclusive end of the stream, once it is planned."""


def plan_routes(plans: PlanService, graphs: GraphService, stats: Callable[[], dict[str, float]]) -> APIRouter:
    """The routes of plans, of their graphs, and of what the plan log takes."""
    router = APIRouter(prefix=API, tags=["plans"])

    @router.get("/stats", dependencies=[needs(Role.VIEWER)])
    def read_stats() -> dict[str, float]:
        """Sizes of the plan log in SQL and in segment files, and what the planner has counted since it started."""
        return stats()

    @router.get(PLANS, response_class=Response, dependencies=[needs(Role.PROCESS)])
    def read_plans(
        run: str,
        stream: str,
        generation: int,
        first: int,
        last: int,
        wait_s: float = 0.0,
        dp_ranks: str | None = None,
        encoder_ranks: str | None = None,
        partitions: str | None = None,
        bind: bool = False,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """An Arrow IPC stream of the planned steps in [first, last), sliced; waits for the first of them."""
        query = parse_query(
            first=first,
            last=last,
            wait_s=wait_s,
            dp_ranks=dp_ranks,
            partitions=partitions,
            bind=bind,
            encoder_ranks=encoder_ranks,
        )
        key = GenerationKey(run=run, stream=stream, generation=generation)
        return _response(plans.read(key, query), if_none_match)

    @router.get("/runs/{run}/streams/{stream}/steps/{step}/graph", dependencies=[needs(Role.VIEWER)])
    def read_graph(run: str, stream: str, step: int) -> StepGraph:
        """A planned step: source -> loader partition -> dp rank, aggregated."""
        return graphs.read(StreamKey(run=run, stream=stream), step)

    return router


def _response(answer: PlanAnswer, if_none_match: str | None) -> Response:
    headers = {"etag": answer.etag}
    if answer.end_step is not None:
        headers[STREAM_END] = str(answer.end_step)
    if if_none_match == answer.etag:
        return Response(status_code=304, headers=headers)
    return Response(answer.body, media_type=ARROW_STREAM, headers=headers)
