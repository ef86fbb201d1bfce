"""`loadmaster sign-in`: a one-time link that opens the console in a browser.

It is good once and for ten minutes. Who runs this must be able to read and write the planner's store.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from loadmaster_flight.wire.errors import UnavailableError

from ..access import Role
from ..store import acting_url
from .access_store import add_store, new_link, opened_store, shell_name
from .failures import failing_cleanly


@failing_cleanly("sign-in")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    args = _parser().parse_args(argv)
    with opened_store(args.state_dir, args.database_url) as database:
        url = args.planner or acting_url(database)
        if url is None:
            raise UnavailableError(f"no planner acts on {args.database_url or args.state_dir}: start one")
        link = new_link(database, url, args.name or shell_name(), [args.role])
    print(json.dumps({"link": link}) if args.json else link)
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="loadmaster sign-in", description=__doc__, formatter_class=formatter)
    add_store(parser)
    parser.add_argument("--role", type=Role, choices=list(Role)[:4], default=Role.ADMIN, help="default: admin")
    parser.add_argument("--name", help="what the audit log calls you (default: your name on this machine)")
    parser.add_argument("--planner", metavar="URL", help="http://host:port as the browser reaches it")
    parser.add_argument("--json", action="store_true", help="print {link} as JSON")
    return parser
