"""The run that a command speaks of."""

from __future__ import annotations

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.http import PlannerClient

from ..joining import list_runs


def only_run(planner: PlannerClient) -> str:
    """The planner's run, where it has exactly one.

    Raises:
        BadRequestError: It has none, or several; names them.
    """
    names = [view.run for view in list_runs(planner)]
    if len(names) != 1:
        raise BadRequestError(f"--run must be given unless the planner has exactly one, it has {names or 'none'}")
    return names[0]
