"""Brings a database to the newest schema, from a checkout and from an installed wheel alike."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config

from .database import migrating


def migrations_dir() -> Path:
    """Folder of the Alembic environment: inside the wheel, or the checkout's migrations/."""
    packaged = Path(str(files("loadmaster_server") / "_migrations"))
    return packaged if (packaged / "env.py").is_file() else Path(__file__).parents[3] / "migrations"


def upgrade(url: str, revision: str = "head") -> None:
    """Run the migrations that are missing, in one transaction. Safe to repeat."""
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    with migrating(url) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
