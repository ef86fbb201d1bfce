"""Brings a database to the newest schema, from a checkout and from an installed wheel alike."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from .database import Database, migrating


def migrations_dir() -> Path:
    """Folder of the Alembic environment: inside the wheel, or the checkout's migrations/."""
    packaged = Path(str(files("loadmaster_server") / "_migrations"))
    return packaged if (packaged / "env.py").is_file() else Path(__file__).parents[3] / "migrations"


def revisions_of(url: str) -> tuple[str | None, str, bool]:
    """The schema's version that a database has (None: it is empty), the newest one, and whether its own is known here.

    Raises:
        UnavailableError: The database cannot be reached.
        BadRequestError: Its driver is missing.
    """
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    known = ScriptDirectory.from_config(config)
    newest = known.get_current_head()
    assert newest is not None, "there are migrations"
    database = Database(url)
    try:
        with database.reading() as session:
            current = MigrationContext.configure(session.connection()).get_current_revision()
    finally:
        database.close()
    return current, newest, current in {script.revision for script in known.walk_revisions()}


def upgrade(url: str, revision: str = "head") -> None:
    """Run the migrations that are missing, in one transaction. Safe to repeat."""
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    with migrating(url) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
