"""`loadmaster diff`: the first step and sample in which two runs part."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence

from loadmaster_flight.wire.control import to_json
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.ledger import DiffReport
from loadmaster_flight.wire.tls import add_tls, tls_of

ABOUT = """Tell in which step two runs, or two generations (RUN:GENERATION), part, and what differs there. Exit code 0:
they do not part; 1: they do."""


def main(argv: Sequence[str]) -> int:
    """Compare two plan logs."""
    args = _parse(argv)
    planner = PlannerClient(args.url, timeout_s=args.timeout_s, tls=tls_of(args))
    try:
        report = planner.get("/diff", DiffReport, a=args.a, b=args.b, stream=args.stream)
    finally:
        planner.close()
    print(json.dumps(to_json(report)) if args.json else "\n".join(_lines(report)))
    return 1 if report.first_step >= 0 else 0


def _lines(r: DiffReport) -> Iterator[str]:
    if r.first_step < 0:
        yield f"{r.a} and {r.b} are equal in the {r.common:,} steps that both have planned"
    else:
        yield f"{r.a} and {r.b} part at step {r.first_step:,}: {r.kind}"
    yield from (f"  {reason}" for reason in r.reasons)
    for name, samples, num in ((r.a, r.only_a, r.num_only_a), (r.b, r.only_b, r.num_only_b)):
        if num:
            yield f"  only in {name}, {num:,} pieces: {_listed(samples, num)}"
    if r.num_moved:
        yield f"  in another microbatch, {r.num_moved:,} pieces: {_listed(r.moved, r.num_moved)}"


def _listed(samples: list[str], num: int) -> str:
    return ", ".join(samples) + (" ..." if num > len(samples) else "")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster diff", description=ABOUT)
    parser.add_argument("url", help="https://host:port of the planner")
    parser.add_argument("a", metavar="RUN_A", help="RUN, or RUN:GENERATION")
    parser.add_argument("b", metavar="RUN_B", help="likewise")
    parser.add_argument("--stream", default="train", help="train, or an evaluation pass")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="deadline of the wait")
    add_tls(parser, serves=False)
    return parser.parse_args(argv)
