"""`loadmaster status`: what a planner's runs and processes are doing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from loadmaster_flight.wire.control import ActorView, LeftOutView, RunView, StreamView, from_json, to_json
from loadmaster_flight.wire.http import PlannerClient, retrying
from loadmaster_flight.wire.tls import add_tls, tls_of
from loadmaster_flight.wire.waiting import PLANNER_URL

from ..joining import list_runs
from .actors import headline, list_actors


def main(argv: Sequence[str]) -> int:
    """Print each run with its streams, and the processes around the planner."""
    args = _parse(argv)
    planner = PlannerClient(args.url, timeout_s=args.timeout_s, tls=tls_of(args))
    try:
        runs = retrying(lambda: list_runs(planner), deadline_s=args.timeout_s)
        found = [(run, [_read(planner, run, name) for name in run.streams]) for run in runs]
        actors = list_actors(planner)
    finally:
        planner.close()
    if args.json:
        trees = [_tree(run, streams) for run, streams in found]
        print(json.dumps({"runs": trees, "actors": [to_json(actor) for actor in actors]}))
    else:
        text = "\n".join(line for run, streams in found for line in _lines(run, streams))
        print(text.replace(PLANNER_URL, args.url) or "no runs")
        print("\n".join(_actor_line(actor) for actor in actors) or "no loaders and no constructors")
    return 0


Stream = tuple[StreamView, list[LeftOutView]]


def _read(planner: PlannerClient, run: RunView, name: str) -> Stream:
    path = f"/runs/{run.run}/streams/{name}"
    left_out = json.loads(planner.request("GET", f"{path}/left-out"))
    return planner.get(path, StreamView), [from_json(LeftOutView, view) for view in left_out]


def _tree(run: RunView, streams: list[Stream]) -> dict[str, Any]:
    trees = [{**to_json(view), "left_out": [to_json(one) for one in left_out]} for view, left_out in streams]
    return {**to_json(run), "streams": trees}


def _lines(run: RunView, streams: list[Stream]) -> list[str]:
    lines = [f"{run.run}  {run.state}" + (f": {run.reason}" if run.reason else "") + f"  revision {run.revision}"]
    for stream, left_out in streams:
        lines += _stream_lines(stream, left_out)
    return lines


def _stream_lines(s: StreamView, left_out: list[LeftOutView]) -> list[str]:
    planned = f"{s.planned}{' (the end)' if s.is_planned_to_end else ''}"
    lines = [f"  {s.stream}  {s.state}" + (f": {s.reason}" if s.reason else "")]
    if s.generation >= 0:
        lines.append(
            f"    generation {s.generation}  planned {planned}  bound {s.bound}  acknowledged {s.acknowledged}"
        )
    if s.waiting_text:
        lines.append(f"    {s.waiting_text}")
    total, shares = max(sum(s.source_tokens), 1), max(sum(s.source_weights), 1e-12)
    for name, tokens, weight in zip(s.source_names, s.source_tokens, s.source_weights, strict=True):
        if tokens or weight:
            share = f"{tokens / total:7.2%} (target now {weight / shares:7.2%})"
            lines.append(f"    {name:<24} {tokens:>14,} tokens  {share}")
        of_source = [view for view in left_out if view.source == name]
        lines += [f"      {view.count:,} {view.verdict}, the last: {view.last_reason}" for view in of_source]
    return lines


def _actor_line(actor: ActorView) -> str:
    return (
        f"{actor.actor_id:<16} {actor.address:<26} pid {actor.pid:<8} heard {actor.heartbeat_age_s:4.1f} s ago  "
        f"{headline(actor)}"
    ).rstrip()


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="loadmaster status", description="Show what a planner's runs and processes are doing."
    )
    parser.add_argument("url", help="https://host:port of the planner")
    parser.add_argument("--json", action="store_true", help="everything, as one JSON object: runs and actors")
    parser.add_argument("--timeout-s", type=float, default=10.0, help="deadline of each wait")
    add_tls(parser, serves=False)
    return parser.parse_args(argv)
