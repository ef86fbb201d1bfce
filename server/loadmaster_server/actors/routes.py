"""HTTP of actors."""

from __future__ import annotations

from fastapi import APIRouter

from loadmaster_flight.wire.control import (
    ActorView,
    HeartbeatReply,
    HeartbeatRequest,
    RegisterReply,
    RegisterRequest,
    SuspectReply,
    SuspectReport,
)
from loadmaster_flight.wire.http import API

from ..access import Role, needs
from .service import ActorService

BY_PROCESS = [needs(Role.PROCESS)]


def actor_routes(actors: ActorService) -> APIRouter:
    """The routes below /api/v1/actors."""
    router = APIRouter(prefix=API, tags=["actors"])

    @router.post("/actors", dependencies=BY_PROCESS)
    def register(request: RegisterRequest) -> RegisterReply:
        """Announce a process; repeat it after every restart of either side."""
        return actors.register(request)

    @router.get("/actors", dependencies=[needs(Role.VIEWER, Role.PROCESS)])
    def list_actors() -> list[ActorView]:
        """Who is there, in the order in which they came."""
        return actors.views()

    @router.post("/actors/suspects", dependencies=BY_PROCESS)
    def suspect(report: SuspectReport) -> SuspectReply:
        """Say that a process cannot be reached; the planner looks itself."""
        return actors.suspect(report)

    @router.post("/actors/{actor_id}/heartbeat", dependencies=BY_PROCESS)
    def heartbeat(actor_id: str, request: HeartbeatRequest) -> HeartbeatReply:
        """Renew leases, report acknowledgements, and learn the desired state."""
        return actors.heartbeat(actor_id, request)

    @router.delete("/actors/{actor_id}", dependencies=BY_PROCESS)
    def leave(actor_id: str) -> dict[str, str]:
        """Leave in peace: the leases are free at once."""
        actors.leave(actor_id)
        return {}

    return router
