"""Loaders and constructors as the planner sees them, for people."""

from __future__ import annotations

import json

from loadmaster_flight.wire.control import ActorView, Role, from_json
from loadmaster_flight.wire.http import PlannerClient

HEADLINES = {
    Role.LOADER: {
        "tokens_measured": "tokens measured",
        "bytes_sent": "sent",
        "window_bytes": "window",
        "shadow_partitions": "shadows",
        "shadow_steps": "warm steps",
        "shadow_bytes": "for them",
    },
    Role.CONSTRUCTOR: {"steps_built": "steps built", "built_bytes": "ready"},
}
"""Of the stats of each role, what fits into a line, and its name there; `status --json` has all."""


def list_actors(planner: PlannerClient) -> list[ActorView]:
    """The processes that the planner has not given up."""
    return [from_json(ActorView, view) for view in json.loads(planner.request("GET", "/actors"))]


def headline(actor: ActorView) -> str:
    """What a process has done, in a few words: `tokens measured 1,234  window 5.0 MiB`."""
    known = {name: label for name, label in HEADLINES[actor.role].items() if name in actor.stats}
    return "  ".join(f"{label} {_figure(name, actor.stats[name])}" for name, label in known.items())


def _figure(name: str, value: float) -> str:
    return f"{value / (1 << 20):,.1f} MiB" if "bytes" in name else f"{value:,.0f}"
