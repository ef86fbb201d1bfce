"""`loadmaster certificates FOLDER --name NAME ...`: a private authority, and certificates that it signs.

For tests, `docker compose` and small clusters. FOLDER gets ca.pem and ca.key, once, and NAME.pem and NAME.key for each
name; again with a name of before renews that one. A certificate serves and calls, and is also good for localhost.
Keep ca.key where no process needs it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from ..certificates import make_certificates
from .failures import failing_cleanly

DAYS = 365.0


@failing_cleanly("certificates")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    args = _parser().parse_args(argv)
    made = make_certificates(args.folder, [names.split(",") for names in args.name], days=args.days)
    if args.json:
        print(json.dumps([{"cert": str(path), "key": str(path.with_suffix(".key"))} for path in made]))
    else:
        print("\n".join(f"{path}  {path.with_suffix('.key')}" for path in made))
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="loadmaster certificates", description=__doc__, formatter_class=formatter)
    parser.add_argument("folder", type=Path, help="where they go")
    parser.add_argument(
        "--name",
        action="append",
        required=True,
        metavar="NAME[,NAME...]",
        help="host name of a process, which the files are called by, and further names or addresses; may be repeated",
    )
    parser.add_argument("--days", type=_days, default=DAYS, help=f"for how long they are good (default {DAYS:g})")
    parser.add_argument("--json", action="store_true", help="print [{cert, key}] as JSON, the authority first")
    return parser


def _days(text: str) -> float:
    days = float(text)
    if not 0 < days <= 3650:
        raise argparse.ArgumentTypeError(f"must be in (0, 3650], got {text}")
    return days
