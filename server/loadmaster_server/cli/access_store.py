"""Tokens and sign-in links from the shell: straight in the planner's store, for who may read its files anyway."""

from __future__ import annotations

import argparse
import getpass
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from loadmaster_flight.wire.errors import NotFoundError

from ..access import AccessMode, AccessService, Role, is_name, sign_in_link
from ..settings import DATABASE_VARIABLE, STATE_DIR, PlannerSettings
from ..store import AccessRepository, Database, upgrade

ADMIN = "admin"


def add_store(parser: argparse.ArgumentParser) -> None:
    """Arguments that say where the planner's store is."""
    parser.add_argument("--state-dir", type=Path, default=Path(STATE_DIR), help=f"folder of planner.db ({STATE_DIR})")
    add_database_url(parser)


def add_database_url(parser: argparse.ArgumentParser) -> None:
    """--database-url."""
    about = f"SQLAlchemy URL of the store, instead of planner.db (default: {DATABASE_VARIABLE})"
    parser.add_argument("--database-url", default=os.environ.get(DATABASE_VARIABLE, ""), help=about)


@contextmanager
def opened_store(state_dir: Path, database_url: str = "") -> Iterator[Database]:
    """The store of a planner, which may be running.

    Raises:
        NotFoundError: No planner has ever been there.
    """
    settings = PlannerSettings(state_dir=state_dir, database_url=database_url)
    if not database_url and not (state_dir / "planner.db").is_file():
        raise NotFoundError(f"there is no planner.db in {state_dir}: start `loadmaster planner` or `up` there first")
    upgrade(settings.store_url)
    database = Database(settings.store_url)
    try:
        yield database
    finally:
        database.close()


def access_in(database: Database) -> AccessService:
    """The service behind tokens and links; the mode of the planner does not matter to them."""
    return AccessService(AccessRepository(database), AccessMode.TOKEN)


def new_link(database: Database, url: str, name: str, roles: Sequence[Role]) -> str:
    """A one-time link to sign in with."""
    return sign_in_link(url, access_in(database).create_code(name, roles, by=shell_name()))


def shell_name() -> str:
    """Who works in this shell, as the audit log calls them."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container without a list of users
        return ADMIN
    return name if is_name(name) else ADMIN
