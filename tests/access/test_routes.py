"""Every route says who may call it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import RouteContext, iter_route_contexts

from loadmaster_flight.wire.http import API
from loadmaster_server.access import Needs, Role
from loadmaster_server.app import Planner, create_app
from loadmaster_server.settings import PlannerSettings

FOR_EVERYBODY = {
    "GET /api/v1/health",
    "GET /api/v1/session",
    "POST /api/v1/session",
    "DELETE /api/v1/session",
}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[FastAPI]:
    """The app of a planner."""
    planner = Planner(PlannerSettings(state_dir=tmp_path))
    yield create_app(planner)
    planner.close()


def _declared(dependant: Dependant) -> list[Needs]:
    own = [dependant.call] if isinstance(dependant.call, Needs) else []
    return own + [found for part in dependant.dependencies for found in _declared(part)]


def _routes(app: FastAPI) -> list[RouteContext]:
    every = list(iter_route_contexts(app.routes))
    return [route for route in every if str(route.path).startswith(API)]


def _names(route: RouteContext) -> set[str]:
    return {f"{method} {route.path}" for method in route.methods}


def test_routes_when_walked_then_each_declares_once_who_may_call_it(app: FastAPI) -> None:
    assert len(_routes(app)) > 40
    wrong = [name for route in _routes(app) if len(_declared(route.dependant)) != 1 for name in _names(route)]
    assert not wrong, f"these routes need exactly one `needs(Role...)`: {wrong}"


def test_routes_when_open_to_everybody_then_only_health_and_signing_in(app: FastAPI) -> None:
    open_ = {name for route in _routes(app) if not _declared(route.dependant)[0].roles for name in _names(route)}
    assert open_ == FOR_EVERYBODY


def test_routes_when_they_change_something_then_no_viewer_is_enough(app: FastAPI) -> None:
    unsafe = [route for route in _routes(app) if route.methods - {"GET", "HEAD"}]
    for route in unsafe:
        roles = _declared(route.dependant)[0].roles
        is_own = route.path == f"{API}/sessions/{{session}}" or not roles
        assert is_own or Role.VIEWER not in roles, _names(route)
