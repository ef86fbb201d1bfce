"""`loadmaster status`: what a planner's runs are doing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from loadmaster_flight.wire.control import RunView, StreamView, to_json
from loadmaster_flight.wire.http import PlannerClient, retrying

from ..joining import list_runs


def main(argv: Sequence[str]) -> int:
    """Print each run and its streams."""
    args = _parse(argv)
    planner = PlannerClient(args.url, timeout_s=args.timeout_s)
    try:
        runs = retrying(lambda: list_runs(planner), deadline_s=args.timeout_s)
        found = [(run, [_stream(planner, run, name) for name in run.streams]) for run in runs]
    finally:
        planner.close()
    if args.json:
        print(json.dumps([_tree(run, streams) for run, streams in found]))
    else:
        print("\n".join(line for run, streams in found for line in _lines(run, streams)) or "no runs")
    return 0


def _stream(planner: PlannerClient, run: RunView, name: str) -> StreamView:
    return planner.get(f"/runs/{run.run}/streams/{name}", StreamView)


def _tree(run: RunView, streams: list[StreamView]) -> dict[str, Any]:
    return {**to_json(run), "streams": [to_json(stream) for stream in streams]}


def _lines(run: RunView, streams: list[StreamView]) -> list[str]:
    lines = [f"{run.run}  {run.state}" + (f": {run.reason}" if run.reason else "") + f"  revision {run.revision}"]
    for stream in streams:
        lines += _stream_lines(stream)
    return lines


def _stream_lines(s: StreamView) -> list[str]:
    planned = f"{s.planned}{' (the end)' if s.is_planned_to_end else ''}"
    lines = [
        f"  {s.stream}  {s.state}" + (f": {s.reason}" if s.reason else ""),
        f"    generation {s.generation}  planned {planned}  bound {s.bound}  acknowledged {s.acknowledged}",
    ]
    if s.waiting_for:
        lines.append(f"    waiting for ranks {', '.join(map(str, s.waiting_for))}")
    total, shares = max(sum(s.source_tokens), 1), max(sum(s.source_weights), 1e-12)
    for name, tokens, weight in zip(s.source_names, s.source_tokens, s.source_weights, strict=True):
        lines.append(f"    {name:<24} {tokens:>14,} tokens  {tokens / total:7.2%} of {weight / shares:7.2%}")
    return lines


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster status", description="Show what a planner's runs are doing.")
    parser.add_argument("url", help="http://host:port of the planner")
    parser.add_argument("--json", action="store_true", help="everything, as one JSON list")
    parser.add_argument("--timeout-s", type=float, default=10.0, help="deadline of each wait")
    return parser.parse_args(argv)
