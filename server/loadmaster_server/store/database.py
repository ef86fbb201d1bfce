"""The connection to SQL: engine, transactions, and the settings that make SQLite a good server's store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from loadmaster_flight.wire.errors import BadRequestError, InternalError, UnavailableError

from .models import Base

BUSY_TIMEOUT_S = 10.0
WRITE = "loadmaster_write"  # execution option of a transaction that will write


class Database:
    """Hands out short transactions. Any thread may use it; a session stays in the thread that opened it.

    Args:
        url: SQLAlchemy URL, SQLite or PostgreSQL.
    """

    def __init__(self, url: str) -> None:
        self.engine = _create_engine(url)
        self._writer = self.engine.execution_options(**{WRITE: True})

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One snapshot; nothing is committed."""
        with _translated(), Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back by any exception. On SQLite there is one writer a time."""
        with _translated(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def insert_new(self, session: Session, model: type[Base], rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows and pass over those whose unique key is there already."""
        if not rows:
            return
        insert: Callable[..., Any] = postgresql.insert if self.engine.dialect.name == "postgresql" else sqlite.insert
        session.execute(insert(model).on_conflict_do_nothing(), list(rows))

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self.engine.dispose()


@contextmanager
def migrating(url: str) -> Iterator[Connection]:
    """One transaction for schema changes.

    Foreign keys are not enforced in it on SQLite: batch mode makes a table anew and drops the old one, and that drop
    would cascade into every row that refers to it.
    """
    engine = _create_engine(url, foreign_keys=False)
    try:
        with _translated(), engine.execution_options(**{WRITE: True}).begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _create_engine(url: str, *, foreign_keys: bool = True) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, pool_pre_ping=True)
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_S}, pool_size=16, max_overflow=64)
    event.listen(engine, "connect", partial(_prepare_sqlite, foreign_keys=foreign_keys))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _: object, *, foreign_keys: bool) -> None:
    connection.isolation_level = None  # transactions are begun by us, below
    busy_timeout = f"busy_timeout={int(BUSY_TIMEOUT_S * 1000)}"
    for pragma in (busy_timeout, "journal_mode=WAL", "synchronous=NORMAL", f"foreign_keys={int(foreign_keys)}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A reader that turns writer halfway can fail at once whatever the timeout is: writers queue up at the start.
    is_write = connection.get_execution_options().get(WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


@contextmanager
def _translated() -> Iterator[None]:
    """SQL trouble leaves the store as one of our errors, without the statement's values."""
    try:
        yield
    except OverflowError as error:
        raise BadRequestError(f"a number is too large to be stored: {error}") from error
    except SQLAlchemyError as error:
        text = str(getattr(error, "orig", None) or type(error).__name__)
        if "locked" in text or getattr(error, "connection_invalidated", False):
            raise UnavailableError(f"the planner's store is busy or away: {text}") from error
        raise InternalError(f"the planner's store failed: {type(error).__name__}: {text}") from error
