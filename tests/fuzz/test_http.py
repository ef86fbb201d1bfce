"""Every route of a live planner, asked for anything: typed problems, and memory stays as it is.

Requests come from the planner's own OpenAPI description. Most of them name a run, a stream and a process that are
there, so that they get past the first look-up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import BY_CODE
from loadmaster_server.access import Role
from loadmaster_server.app import create_app
from support.secured import RUN, Secured

from .conftest import Tally, has_grown, rss_bytes

CALL_S = 20.0
SLACK_BYTES = 64 << 20
EVENTS = "text/event-stream"


@pytest.fixture(scope="module")
def schema(plane: Secured) -> Any:
    """All routes."""
    return schemathesis.openapi.from_dict(create_app(plane.server.planner).openapi())


@pytest.fixture(scope="module")
def session(plane: Secured) -> Iterator[requests.Session]:
    """Somebody who may do everything."""
    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(plane.certificates / "ca.pem")
        token = plane.token("fuzz", Role.ADMIN, Role.PROCESS)
        session.headers["authorization"] = f"Bearer {token}"
        yield session


def test_routes_when_they_are_asked_for_anything_then_problems_have_codes(
    plane: Secured, schema: Any, session: requests.Session, num_examples: int
) -> None:
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 50
    each = max(2, num_examples // 80)
    for operation in operations[::8]:  # what is loaded and compiled once
        _ask(plane, operation, session, 1, Tally())
    before, tally = rss_bytes(), Tally()
    answered = {operation.label: _ask(plane, operation, session, each, tally) for operation in operations}
    well = [label for label, statuses in answered.items() if min(statuses, default=500) < 400]
    assert len(well) > len(operations) // 3, f"hardly any request was good enough to be answered: {answered}"
    tally.tell()
    assert not has_grown(before, SLACK_BYTES)
    assert json.loads(session.get(plane.url + "/api/v1/health", timeout=CALL_S).text)["status"] == "ok"


def _ask(plane: Secured, operation: Any, session: requests.Session, num_examples: int, tally: Tally) -> set[int]:
    """Ask for one route; which statuses came."""
    statuses: set[int] = set()
    known = {"run": RUN, "stream": "train", "generation": 0, "actor_id": plane.loader.link.actor_id, "author": "fuzz"}

    @settings(settings.get_profile("fuzz"), max_examples=num_examples)
    @given(operation.as_strategy(), st.integers(0, 3))
    def requests_of(case: Any, luck: int) -> None:
        if luck and case.path_parameters:
            case.path_parameters.update({name: known[name] for name in case.path_parameters if name in known})
        status = _send(case, plane.url, session)
        statuses.add(status)
        tally.codes[str(status)] += 1

    requests_of()
    return statuses


def _send(case: Any, url: str, session: requests.Session) -> int:
    arguments = case.as_transport_kwargs(base_url=url)
    arguments["headers"] = {**arguments["headers"], "authorization": session.headers["authorization"]}
    with session.request(**arguments, stream=True, timeout=CALL_S) as answer:
        kind = answer.headers.get("content-type", "")
        body = "" if kind.startswith(EVENTS) else answer.content.decode()  # .text would guess at the encoding
    place = (
        f"{arguments['method']} {arguments['url']} {arguments.get('json', '')!r:.400}: {answer.status_code} {body:.400}"
    )
    assert "Traceback" not in body, place
    if answer.status_code < 400:
        return answer.status_code
    assert kind == "application/problem+json", place
    told = json.loads(body)
    assert told["code"] in BY_CODE, place
    assert told["code"] != "INTERNAL", place
    assert answer.status_code < 500 or BY_CODE[told["code"]].retry, place
    return answer.status_code
