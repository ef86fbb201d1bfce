"""`loadmaster verify`: prove that every piece of a stream was delivered exactly once."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from loadmaster_flight.wire.control import from_json, to_json
from loadmaster_flight.wire.errors import UnavailableError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.ledger import VerifyReport
from loadmaster_flight.wire.tls import add_tls, tls_of

from .only_run import only_run

ABOUT = """Prove over the plan log that every piece of a stream's trained lineage was delivered exactly once, in order
and with none lost, or list what was not. Exit code 0: it is whole; 1: it is not."""


def main(argv: Sequence[str]) -> int:
    """Verify one stream."""
    args = _parse(argv)
    planner = PlannerClient(args.url, timeout_s=args.timeout_s, tls=tls_of(args))
    try:
        report = _verify(planner, args.run or only_run(planner), args)
    finally:
        planner.close()
    print(json.dumps(to_json(report)) if args.json else "\n".join(_lines(report)))
    return 1 if report.num_faults else 0


def _verify(planner: PlannerClient, run: str, args: argparse.Namespace) -> VerifyReport:
    query = {"stream": args.stream} | ({} if args.generation is None else {"generation": args.generation})
    is_live = not args.json and sys.stderr.isatty()
    report: VerifyReport | None = None
    for line in planner.lines(f"/runs/{run}/verify", query=query):
        report = from_json(VerifyReport, json.loads(line))
        if is_live:
            sys.stderr.write(f"\r\x1b[Kstep {report.read_to:,}  {report.num_faults:,} faults")
            sys.stderr.flush()
    if is_live:
        sys.stderr.write("\r\x1b[K")
    if report is None or not report.is_done:
        raise UnavailableError("the planner broke off before the end of the log: look at its log, and verify again")
    return report


def _lines(r: VerifyReport) -> Iterator[str]:
    yield f"{r.run}/{r.stream}  {'; '.join(r.lineage)}"
    left_out = f", {r.left_out_steps:,} more left out on purpose" if r.left_out_steps else ""
    yield f"  {r.acknowledged:,} steps acknowledged{left_out}; {r.read_to:,} planned and read"
    cut = f", {r.cut_samples:,} of them cut" if r.cut_samples else ""
    yield f"  delivered {r.pieces:,} pieces of {r.samples:,} samples{cut}; planned ahead {r.planned_pieces:,} pieces"
    yield f"  left out by verdict {r.skipped:,} rows; waiting in the queue at step {r.closed_at:,} {r.queued:,} pieces"
    if r.bodies_gone:
        yield f"  of {r.bodies_gone:,} old steps the pieces alone are held: their digests could not be compared"
    for fault in r.faults:
        sample = f"{fault.sample}: " if fault.sample else ""
        yield f"  {fault.kind.upper()}  step {fault.step}  {sample}{fault.message}"
    if r.num_faults > len(r.faults):
        yield f"  and {r.num_faults - len(r.faults):,} more"
    if r.num_faults:
        yield f"NOT WHOLE: {r.num_faults:,} faults"
        return
    yield f"WHOLE: every piece of the {r.acknowledged:,} acknowledged steps was delivered exactly once"
    if r.closed_at < r.acknowledged:
        yield f"  of what was drawn from step {r.closed_at:,} on, losses show only once the next checkpoint is written"


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster verify", description=ABOUT)
    parser.add_argument("url", help="https://host:port of the planner")
    parser.add_argument("run", nargs="?", help="name of the run; by default the only one there is")
    parser.add_argument("--stream", default="train", help="train, or an evaluation pass")
    parser.add_argument("--generation", type=int, help="whose lineage; by default the newest one's")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="deadline of each wait")
    add_tls(parser, serves=False)
    return parser.parse_args(argv)
