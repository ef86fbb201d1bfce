"""`loadmaster create RUN.yaml --planner URL`: create a run at a planner that runs already.

Opens every source, as `check` does, and freezes what it finds: the order of shards, their sizes, the fingerprints of
tokenizers. The same run again is fine and changes nothing; another spec under the same name is refused.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from loadmaster_flight.wire.control import to_json
from loadmaster_flight.wire.http import PlannerClient

from ..launch import register_run
from .failures import failing_cleanly
from .opening import open_run


@failing_cleanly("create")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    args = _parser().parse_args(argv)
    PlannerClient(args.planner).close()  # a wrong address is refused before the sources are opened
    spec, manifests = open_run(Path(args.run))
    view = register_run(args.planner, spec, manifests, timeout_s=args.timeout_s)
    if args.json:
        print(json.dumps(to_json(view)))
    else:
        print(f"run {view.run} is at {args.planner}  {view.state}  streams {', '.join(view.streams)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="loadmaster create", description=__doc__, formatter_class=formatter)
    parser.add_argument(
        "run", metavar="RUN.yaml", help="the run spec; loaders must find its files under the same paths"
    )
    parser.add_argument("--planner", required=True, metavar="URL", help="the planner, http://host:port")
    parser.add_argument("--json", action="store_true", help="print the run as one JSON object")
    parser.add_argument("--timeout-s", type=float, default=30.0, help="how long the planner may take to answer")
    return parser
