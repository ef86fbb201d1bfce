from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

from loadmaster_server.store.database import migrating
from loadmaster_server.store.migration import migrations_dir, upgrade
from loadmaster_server.store.models import Base
from support.temporary_postgres import Cluster


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLAlchemy URL of a database without tables, SQLite and then PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'planner.db'}"
    cluster: Cluster = request.getfixturevalue("postgres")
    return cluster.new_database()


def test_upgrade_when_database_is_empty_then_schema_equals_models(url: str) -> None:
    upgrade(url)
    with migrating(url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_upgrade_when_repeated_then_nothing_changes(url: str) -> None:
    upgrade(url)
    engine = create_engine(url)
    tables = set(inspect(engine).get_table_names())
    upgrade(url)
    assert set(inspect(engine).get_table_names()) == tables == {*Base.metadata.tables, "alembic_version"}
    engine.dispose()


def test_history_has_one_line() -> None:
    script = ScriptDirectory(str(migrations_dir()))
    revisions = list(script.walk_revisions())
    assert len(script.get_heads()) == len(script.get_bases()) == 1
    assert all(not isinstance(revision.down_revision, tuple) for revision in revisions)


@pytest.mark.processes
def test_upgrade_when_installed_from_a_wheel_then_finds_its_migrations(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=root, check=True, capture_output=True, timeout=120)
    installed = tmp_path / "installed"
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(installed)
    code = (
        "import loadmaster_server; from loadmaster_server.store import Store; from loadmaster_server.store.migration "
        "import migrations_dir; Store('sqlite:///wheel.db').close(); print(migrations_dir())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYTHONPATH"] = str(installed)
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str(installed / "loadmaster_server" / "_migrations")
    assert (tmp_path / "wheel.db").is_file()
