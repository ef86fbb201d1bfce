"""`loadmaster resume`: let a paused or failed run go on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from loadmaster_flight.wire.control import RunView, from_json, to_json
from loadmaster_flight.wire.http import PlannerClient, retrying
from loadmaster_flight.wire.tls import add_tls, tls_of

from .only_run import only_run

ABOUT = """Let a paused or failed run go on. A run pauses when a source has too many bad rows; `loadmaster status` says
which. Those rows are passed over; the next ones are judged afresh. Ranks that have ended are started again with the
state that they saved."""


def main(argv: Sequence[str]) -> int:
    """Resume one run and say how it is."""
    args = _parse(argv)
    planner = PlannerClient(args.url, timeout_s=args.timeout_s, tls=tls_of(args))
    try:
        view = retrying(lambda: _resume(planner, args.run), deadline_s=args.timeout_s)
    finally:
        planner.close()
    if args.json:
        print(json.dumps(to_json(view)))
    else:
        print(f"{view.run}  {view.state}" + (f": {view.reason}" if view.reason else ""))
    return 0


def _resume(planner: PlannerClient, run: str | None) -> RunView:
    name = run if run is not None else only_run(planner)
    return from_json(RunView, json.loads(planner.request("POST", f"/runs/{name}/resume")))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster resume", description=ABOUT)
    parser.add_argument("url", help="https://host:port of the planner")
    parser.add_argument("--run", help="name of the run; by default the only one there is")
    parser.add_argument("--json", action="store_true", help="print the run as one JSON object")
    parser.add_argument("--timeout-s", type=float, default=10.0, help="deadline of each wait")
    add_tls(parser, serves=False)
    return parser.parse_args(argv)
