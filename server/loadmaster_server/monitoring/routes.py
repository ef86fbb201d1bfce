"""`GET /metrics`, beside the API: where Prometheus looks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from loadmaster_flight.telemetry import Readings

from ..access import Role, needs

if TYPE_CHECKING:
    from loadmaster_flight.telemetry.exposition import Exposition


def metrics_routes(collect: Callable[[], Readings]) -> APIRouter:
    """The one route of metrics; the API's description leaves it out."""
    router, exposition = APIRouter(), _exposition_of(collect)

    @router.get(
        "/metrics", include_in_schema=False, dependencies=[needs(Role.VIEWER, Role.METRICS)], response_class=Response
    )
    def read_metrics(request: Request) -> Response:
        """All metrics of the planner, in the text format that is asked for."""
        body, content_type = exposition().render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return router


def _exposition_of(collect: Callable[[], Readings]) -> Callable[[], Exposition]:
    """Makes it when it is first asked for: its library takes a tenth of a second to import."""

    @cache
    def made() -> Exposition:
        from loadmaster_flight.telemetry.exposition import Exposition

        return Exposition("planner", collect)

    return made
