"""`loadmaster token create|list|revoke`: bearer tokens for scripts and for processes.

`create` prints the token once; it is kept as a hash. Set it as LOADMASTER_TOKEN where it is to be used. A revoked token
opens nothing within two seconds, and the browser sessions that were opened with it end. `create --keep FILE` writes it
to FILE, which LOADMASTER_TOKEN_FILE may name; again, it makes another one only where that one opens nothing any more.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadmaster_flight.wire.errors import UnauthenticatedError

from ..access import AccessService, Role
from ..store import TokenRecord
from .access_store import access_in, add_store, opened_store, shell_name
from .failures import failing_cleanly

DAY_S = 86400.0


@failing_cleanly("token")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    args = _parser().parse_args(argv)
    with opened_store(args.state_dir, args.database_url) as database:
        args.act(args, access_in(database))
    return 0


def _create(args: argparse.Namespace, access: AccessService) -> None:
    token = None if args.keep is None else _kept(args, access)
    if token is None:
        expires_in_s = None if args.days is None else args.days * DAY_S
        secret, token = access.create_token(args.name, args.role, by=shell_name(), expires_in_s=expires_in_s)
        if args.keep is None:
            print(json.dumps(_tree(token) | {"token": secret}) if args.json else secret)
            return
        _write(args.keep, secret)
    print(json.dumps(_tree(token)) if args.json else f"{args.keep} holds token {token.id} of {token.grant.name}")


def _kept(args: argparse.Namespace, access: AccessService) -> TokenRecord | None:
    """What is kept of the token in the file; None: there is none that is good and has these very roles."""
    try:
        token = access.read_token(args.keep.read_text().strip())
    except (FileNotFoundError, UnauthenticatedError):
        return None
    return token if set(token.grant.roles) == {role.value for role in args.role} else None


def _write(path: Path, secret: str) -> None:
    """As a whole, and never readable by others."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret + "\n")
    part.replace(path)


def _list(args: argparse.Namespace, access: AccessService) -> None:
    tokens = access.tokens()
    if args.json:
        print(json.dumps([_tree(token) for token in tokens]))
        return
    table = Table("id", "name", "roles", "created by", "state", "last used", box=None, header_style="bold")
    for token in tokens:
        table.add_row(token.id, token.grant.name, ", ".join(token.grant.roles), token.created_by, *_states(token))
    Console().print(table)


def _revoke(args: argparse.Namespace, access: AccessService) -> None:
    token = access.revoke_token(args.id, by=shell_name())
    print(json.dumps(_tree(token)) if args.json else f"token {token.id} of {token.grant.name} opens nothing any more")


def _tree(token: TokenRecord) -> dict[str, object]:
    tree = asdict(token)
    grant: dict[str, object] = tree.pop("grant")
    return tree | grant | {"is_good": token.is_good(time.time())}


def _states(token: TokenRecord) -> tuple[str, str]:
    used = "never" if token.last_used_at is None else _date(token.last_used_at)
    if token.revoked_at is not None:
        return f"revoked {_date(token.revoked_at)}", used
    if token.expires_at is None:
        return "good", used
    return ("good until " if token.is_good(time.time()) else "expired ") + _date(token.expires_at), used


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="loadmaster token", description=__doc__, formatter_class=formatter)
    acts = parser.add_subparsers(required=True, metavar="create|list|revoke")
    create = acts.add_parser("create", help="hand out a token")
    create.add_argument("--name", required=True, help="what the audit log calls who uses it")
    create.add_argument("--role", type=Role, choices=list(Role), action="append", required=True, help="may be repeated")
    create.add_argument("--days", type=_days, help="for how long it is good (default: until it is revoked)")
    create.add_argument(
        "--keep", type=Path, metavar="FILE", help="write it there; do nothing while what is there is good"
    )
    create.set_defaults(act=_create)
    acts.add_parser("list", help="show all tokens").set_defaults(act=_list)
    revoke = acts.add_parser("revoke", help="let a token open nothing any more")
    revoke.add_argument("id", help="as `list` shows it")
    revoke.set_defaults(act=_revoke)
    for act in acts.choices.values():
        add_store(act)
        act.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _days(text: str) -> float:
    days = float(text)
    if not 0 < days <= 3660:
        raise argparse.ArgumentTypeError(f"must be in (0, 3660], got {text}")
    return days
