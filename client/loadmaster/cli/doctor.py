"""`loadmaster doctor`: look for what will not work here, and say how to put it right."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path

from loadmaster_flight.wire.tls import add_tls, tls_of

from .findings import CHECKS_GROUP, DoctorCase, Finding, Status, fail, skip
from .machine_checks import check_machine
from .planner_checks import check_planner

ABOUT = """Look at Python and its packages, shared memory, limits, ports and, where they are named, at a planner, its
processes and its database. What will not work is told with its fix; the exit code is 1 then."""
Check = Callable[[DoctorCase], Iterable[Finding]]
COLORS = {Status.OK: "32", Status.WARN: "33", Status.FAIL: "31", Status.SKIP: "2"}


def main(argv: Sequence[str]) -> int:
    """Print one line a check; 1 where one fails."""
    args = _parse(argv)
    case = DoctorCase(
        planner=args.planner,
        state_dir=args.state_dir,
        database_url=args.database_url,
        host=args.host,
        ports=tuple(args.port),
        timeout_s=args.timeout_s,
        tls=tls_of(args),
    )
    findings = []
    for finding in _examine(case):
        findings.append(finding)
        if not args.json:
            print("\n".join(_lines(finding)), flush=True)
    counts = Counter(finding.status.value for finding in findings)
    if args.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings], **counts}))
    else:
        print(", ".join(f"{num} {status}" for status, num in counts.items()))
    return 1 if counts[Status.FAIL.value] else 0


def _examine(case: DoctorCase) -> Iterator[Finding]:
    """All checks; one that breaks is a failure itself, and ends no other."""
    own: list[tuple[str, Callable[[], Check]]] = [
        ("machine", lambda: check_machine),
        ("planner", lambda: check_planner),
    ]
    others = [(entry.name, entry.load) for entry in sorted(entry_points(group=CHECKS_GROUP), key=lambda e: e.name)]
    for name, load in [*own, *others]:
        try:
            yield from load()(case)
        except ImportError as error:
            yield skip(name, f"{error.name or error} is missing: pip install 'loadmaster[server]' to have it looked at")
        except Exception as error:
            yield fail(name, f"the check itself failed: {type(error).__name__}: {error}", "report it")


def _lines(finding: Finding) -> Iterator[str]:
    status = f"{finding.status.value:<4}"
    if sys.stdout.isatty():
        status = f"\x1b[{COLORS[finding.status]}m{status}\x1b[0m"
    yield f"{status}  {finding.check:<18} {finding.found}"
    if finding.fix:
        yield f"{'':4}  {'':18} fix: {finding.fix}"


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster doctor", description=ABOUT)
    parser.add_argument("--planner", default="", metavar="URL", help="a planner to ask, https://host:port")
    parser.add_argument("--state-dir", type=Path, default=Path(".loadmaster"), help="of a planner on this machine")
    parser.add_argument("--database-url", default="", help="its database, instead of planner.db in --state-dir")
    parser.add_argument("--port", type=int, action="append", default=[], help="should be free here; may be repeated")
    parser.add_argument("--host", default="127.0.0.1", help="address at which ports should be free")
    parser.add_argument("--timeout-s", type=float, default=5.0, help="deadline of each answer of the planner")
    parser.add_argument("--json", action="store_true", help="everything, as one JSON object")
    add_tls(parser, serves=False)
    return parser.parse_args(argv)
