"""Alembic's entry: one linear history, batch mode where SQLite needs it.

The planner passes its connection. By hand: `alembic -x url=sqlite:////path/planner.db upgrade head`.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from loadmaster_server.store.database import migrating
from loadmaster_server.store.models import Base


def run(connection: Connection) -> None:
    """Run the migrations on a connection."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_by_hand() -> None:
    """Open the database that the command line names."""
    url = context.get_x_argument(as_dictionary=True).get("url")
    if not url:
        raise SystemExit("say which database: alembic -x url=sqlite:////path/planner.db upgrade head")
    with migrating(url) as connection:
        run(connection)


given = context.config.attributes.get("connection")
if given is None:
    run_by_hand()
else:
    run(given)
