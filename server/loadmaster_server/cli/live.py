"""The live table of `loadmaster up`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table

from loadmaster.cli.actors import headline
from loadmaster_flight.wire.control import ActorView, StreamView


def status_table(views: Sequence[StreamView], pids: dict[str, int], actors: Sequence[ActorView]) -> Group:
    """Streams, the mixture achieved against its target, and the processes."""
    processes = _processes(pids, {actor.pid: actor for actor in actors})
    return Group(_streams(views), "", _mixture(views), "", processes)


def _table(*columns: str) -> Table:
    """Without lines: three tables fit into a terminal of 80 by 24."""
    return Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="bold")


def _streams(views: Sequence[StreamView]) -> Table:
    table = _table("stream", "state", "planned", "bound", "acknowledged", "waiting for")
    for view in views:
        waiting = ", ".join(f"rank {rank}" for rank in view.waiting_for[:8]) or "-"
        steps = (str(view.planned), str(view.bound), str(view.acknowledged))
        table.add_row(view.stream, view.reason or view.state, *steps, waiting)
    return table


def _mixture(views: Sequence[StreamView]) -> Table:
    table = _table("source", "tokens", "share", "target now")
    for view in views[:1]:
        total = sum(view.source_tokens) or 1
        for name, tokens, weight in zip(view.source_names, view.source_tokens, view.source_weights, strict=False):
            if tokens or weight:
                table.add_row(name, f"{tokens:,}", f"{tokens / total:.2%}", f"{weight:.2%}")
    return table


def _processes(pids: dict[str, int], actors: dict[int, ActorView]) -> Table:
    table = _table("process", "pid", "address", "heard of", "what it did")
    for name, pid in pids.items():
        actor = actors.get(pid)
        told = ("", "", "") if actor is None else _told(actor)
        table.add_row(name, str(pid), *told)
    return table


def _told(actor: ActorView) -> tuple[str, str, str]:
    return actor.address.partition("://")[2], f"{actor.heartbeat_age_s:.1f} s ago", headline(actor)
