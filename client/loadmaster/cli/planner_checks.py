"""Checks of `loadmaster doctor` that ask a planner, and what it knows of."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.control import ActorView, Role
from loadmaster_flight.wire.errors import ForbiddenError, LoadmasterError, UnauthenticatedError, UnavailableError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.http import PlannerClient

from .actors import list_actors
from .findings import DoctorCase, Finding, fail, installed, ok, skip, warn

MAX_PROBED = 16
"""Of each role: an address that cannot be reached takes a while."""
PROBE_S = 2.0
CLOCK_WARN_S, CLOCK_FAIL_S = 1.0, 30.0
"""Tickets live for minutes: a clock that is off by half a minute makes them short, or not valid at all."""
CLOCK_TRIES = 3


def check_planner(case: DoctorCase) -> Iterator[Finding]:
    """The planner, its version and clock, our right to read, and the processes around it."""
    if not case.planner:
        yield skip("planner", "none was named: loadmaster doctor --planner URL")
        return
    try:
        client = PlannerClient(case.planner, timeout_s=case.timeout_s, tls=case.tls)
    except LoadmasterError as error:
        yield fail("planner", error.message, "give --planner as http://host:port, or https://host:port")
        return
    with closing(client):
        yield from _ask(client, case)


def _ask(client: PlannerClient, case: DoctorCase) -> Iterator[Finding]:
    try:
        health, offset_s = _health(client)
    except UnavailableError as error:
        yield _not_there(error)
        return
    except LoadmasterError as error:
        yield fail("planner", error.message, "see what answers at that address")
        return
    yield ok("planner", f"{client.url} acts, access {health.get('access', '?')}")
    yield _version(str(health.get("version", "")))
    yield _clock(offset_s)
    try:
        actors = list_actors(client)
    except (UnauthenticatedError, ForbiddenError) as error:
        yield fail(
            "access", error.message, "set LOADMASTER_TOKEN to a token of `loadmaster token create --role process`"
        )
        return
    except LoadmasterError as error:
        yield fail("access", error.message, "see the planner's log")
        return
    yield ok("access", "we may read what the planner knows")
    for role in Role:
        yield _role(role, [actor for actor in actors if actor.role is role], case)


def _not_there(error: UnavailableError) -> Finding:
    if error.details.get("holder"):
        return warn("planner", error.message, f"name the one that acts: {error.details['holder']}")
    return fail("planner", error.message, "start it (loadmaster planner), or see to --planner, firewall and proxies")


def _health(client: PlannerClient) -> tuple[dict[str, Any], tuple[float, float] | None]:
    """What it says of itself, and bounds of how far its clock is ahead of ours."""
    low, high, health = float("-inf"), float("inf"), dict[str, Any]()
    for _ in range(CLOCK_TRIES):
        before = time.time()
        health = json.loads(client.request("GET", "/health"))
        after = time.time()
        if "time" not in health:
            return health, None
        low, high = max(low, health["time"] - after), min(high, health["time"] - before)
    return health, (low, high) if low <= high else None


def _version(theirs: str) -> Finding:
    ours = installed("loadmaster") or ""
    if not theirs:
        return warn("version", f"{ours} here; the planner does not say its own", "upgrade the planner")
    if theirs != ours:
        return warn("version", f"{ours} here, {theirs} at the planner", f"pip install 'loadmaster=={theirs}'")
    return ok("version", f"{ours}, as the planner's")


def _clock(offset_s: tuple[float, float] | None) -> Finding:
    if offset_s is None:
        return skip("clock", "the planner does not say its time, or a clock was set meanwhile")
    low, high = offset_s
    least_s = max(low, -high, 0.0)
    found = f"the planner's is between {low:+.3f} and {high:+.3f} s ahead of ours"
    if least_s > CLOCK_FAIL_S:
        return fail("clock", found, "set both clocks: timedatectl set-ntp true")
    if least_s > CLOCK_WARN_S:
        return warn("clock", found, "set both clocks: timedatectl set-ntp true")
    return ok("clock", found)


def _role(role: Role, actors: list[ActorView], case: DoctorCase) -> Finding:
    name = f"{role.value}s"
    if not actors:
        return warn(name, "none is registered with the planner", f"start one: loadmaster {role.value} --planner URL")
    lost = {actor.address: why for actor in actors[:MAX_PROBED] if (why := _unreachable(actor.address, case))}
    probed = f"{min(len(actors), MAX_PROBED)} of {len(actors)}" if len(actors) > MAX_PROBED else str(len(actors))
    if not lost:
        return ok(name, f"{probed} answer at their addresses")
    first = next(iter(lost))
    found = f"{len(lost)} of {probed} cannot be reached from here: {first}: {lost[first]}"
    fix = "open the port in the firewall, or have it say --advertise with an address that this machine can reach"
    return fail(name, found, fix) if role is Role.CONSTRUCTOR else warn(name, f"{found} (trainers need not)", fix)


def _unreachable(address: str, case: DoctorCase) -> str:
    try:
        with FlightPeer(address, tls=case.tls) as peer:
            peer.action(Action.HEALTH, timeout_s=PROBE_S)
    except LoadmasterError as error:
        return error.message
    return ""
