"""Giving a run to a planner."""

from __future__ import annotations

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.control import CreateRunRequest, RunView
from loadmaster_flight.wire.http import PlannerClient, retrying
from loadmaster_flight.wire.tls import Tls


def register_run(
    planner_url: str,
    spec: RunSpec,
    manifests: list[SourceManifest],
    *,
    timeout_s: float,
    token: str | None = None,
    tls: Tls | None = None,
) -> RunView:
    """Create a run at a planner; the same spec and manifests again change nothing.

    Args:
        token: Bearer token; None: that of the environment.
        tls: How to call the planner; None: what the environment says.

    Raises:
        ConflictError: The name belongs to a run that differs; names what.
        UnavailableError: The planner did not answer within `timeout_s`.
    """
    request = CreateRunRequest(spec=spec.to_tree(), manifests=[m.model_dump(mode="json") for m in manifests])
    client = PlannerClient(planner_url, token=token, tls=tls)
    try:
        return retrying(lambda: client.post("/runs", request, RunView), deadline_s=timeout_s)
    finally:
        client.close()
