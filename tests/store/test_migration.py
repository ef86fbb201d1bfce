from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

from loadmaster_server.store.database import migrating
from loadmaster_server.store.migration import migrations_dir, upgrade
from loadmaster_server.store.models import Base


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
