"""Taking part in a stream: find the run, meet the other ranks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from loadmaster_flight.wire.control import JoinReply, JoinRequest, RunView, from_json
from loadmaster_flight.wire.errors import BadRequestError, DeadlineError, LoadmasterError
from loadmaster_flight.wire.http import PlannerClient, retrying

from .feed import JoinOptions

POLL_S = 0.02
"""Between two asks: the planner holds one for about a second, unless it wants the next at once."""
T = TypeVar("T")


def list_runs(planner: PlannerClient) -> list[RunView]:
    """The planner's runs."""
    return [from_json(RunView, view) for view in json.loads(planner.request("GET", "/runs"))]


def find_run(planner: PlannerClient, options: JoinOptions, stop: threading.Event) -> str:
    """The name of the run to join: the one asked for, else the planner's only one.

    Raises:
        BadRequestError: There is none, or more than one: then run must be given.
        DeadlineError: The planner did not answer within `timeout_s`.
    """
    if options.run is not None:
        return options.run
    views = _patiently(lambda: list_runs(planner), options, "", options.timeout_s, stop)
    names = [view.run for view in views]
    if len(names) != 1:
        raise BadRequestError(f"run must be given unless the planner has exactly one, it has {names or 'none'}")
    return names[0]


def join(planner: PlannerClient, run: str, options: JoinOptions, stop: threading.Event, *, nonce: str) -> JoinReply:
    """Join and wait until every rank has.

    Args:
        nonce: A random word of this attempt, which tickets are asked for with.

    Raises:
        DeadlineError: Not open within `timeout_s`; names rank, step and the ranks that are missing.
        LoadmasterError: The planner refuses, for example coordinates that differ from the run's mesh.
    """
    request = JoinRequest(
        rank=options.rank,
        world_size=options.world_size,
        nonce=nonce,
        step=options.step,
        parent=options.parent,
        coords=dict(options.coords),
        mesh=dict(options.mesh),
        replay=options.replay,
        skip=list(options.skip),
    )
    path = f"/runs/{run}/streams/{options.stream}/join"
    until_s = time.monotonic() + options.timeout_s
    while True:
        left_s = until_s - time.monotonic()
        reply = _patiently(lambda: planner.post(path, request, JoinReply), options, run, left_s, stop)
        if reply.state == "open":
            return reply
        if until_s - time.monotonic() < POLL_S or stop.wait(POLL_S):
            raise _too_late(options, run, f"waiting for {_ranks(reply.waiting_for)}")


def _patiently(call: Callable[[], T], options: JoinOptions, run: str, deadline_s: float, stop: threading.Event) -> T:
    """`retrying`, and what ran out of time says for whom."""
    try:
        return retrying(call, deadline_s=deadline_s, stop=stop)
    except LoadmasterError as error:
        if not error.retry:
            raise
        raise _too_late(options, run, error.message) from error


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (", ..." if len(ranks) > 16 else "")
    return f"ranks {shown} to join" if ranks else "the planner to open it"


def _too_late(options: JoinOptions, run: str, missing: str) -> DeadlineError:
    name = f"stream {options.stream}" + (f" of run {run}" if run else "")
    return DeadlineError(
        f"rank {options.rank}: {name} did not open at step {options.step} within {options.timeout_s:g} s: {missing}"
    )
