"""The connection to SQL: engine, transactions, and the settings that make SQLite a good server's store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DataError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from loadmaster_flight.wire.errors import BadRequestError, InternalError, UnavailableError

from .models import Base

BUSY_TIMEOUT_S = 10.0
IDLE_WRITER_S = 5.0
IDLE_MIGRATION_S = 60.0
WRITE = "loadmaster_write"  # execution option of a transaction that will write
IDLE = "loadmaster_idle"  # and of how many seconds it may pause
SQLITE_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
"""Not our mistakes: the file is in use, or its disk is full or away."""
WRITER_LOCK = 0x4C4D  # PostgreSQL's advisory lock of the one who writes


class Database:
    """Hands out short transactions. Any thread may use it; a session stays in the thread that opened it.

    Args:
        url: SQLAlchemy URL, SQLite or PostgreSQL.
        fence: Called first in each transaction that writes; what it raises ends the transaction.
    """

    def __init__(self, url: str, *, fence: Callable[[Session], None] | None = None) -> None:
        self._fence = fence
        self.engine = _create_engine(url)
        self._writer = self.engine.execution_options(**{WRITE: True})
        self._is_closed = False
        event.listen(self.engine, "checkin", self._checked_in)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One snapshot; nothing is committed."""
        with _translated(), Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back by any exception. There is one writer at a time."""
        with _translated(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            if self._fence is not None:
                self._fence(session)
            yield session

    def insert_new(self, session: Session, model: type[Base], rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows and pass over those whose unique key is there already."""
        if not rows:
            return
        insert: Callable[..., Any] = postgresql.insert if self.engine.dialect.name == "postgresql" else sqlite.insert
        session.execute(insert(model).on_conflict_do_nothing(), list(rows))

    def close(self) -> None:
        """Close all connections; those in use when their transactions end. Idempotent."""
        self._is_closed = True
        self.engine.dispose()

    def _checked_in(self, connection: DBAPIConnection | None, _: object) -> None:
        if self._is_closed and connection is not None:
            connection.close()


def without_password(url: str) -> str:
    """A URL of a store as it may be shown."""
    return make_url(url).render_as_string(hide_password=True)


@contextmanager
def migrating(url: str) -> Iterator[Connection]:
    """One transaction for schema changes.

    Foreign keys are not enforced in it on SQLite: batch mode makes a table anew and drops the old one, and that drop
    would cascade into every row that refers to it.
    """
    engine = _create_engine(url, foreign_keys=False)
    try:
        with _translated(), engine.execution_options(**{WRITE: True, IDLE: IDLE_MIGRATION_S}).begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _create_engine(url: str, *, foreign_keys: bool = True) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return _create_postgres(parsed)
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_S}, pool_size=16, max_overflow=64)
    event.listen(engine, "connect", partial(_prepare_sqlite, foreign_keys=foreign_keys))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_postgres(url: URL) -> Engine:
    """With psycopg 3 unless the URL names another driver, whose waits are its own then."""
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    try:
        if url.drivername == "postgresql+psycopg":
            from .postgres import create_postgres_engine

            engine = create_postgres_engine(url)
        else:
            engine = create_engine(url, pool_pre_ping=True, pool_size=16, max_overflow=64)
    except ModuleNotFoundError as error:
        rule = "a PostgreSQL database needs the driver of its URL"
        raise BadRequestError(f"{rule}, {error}: pip install 'loadmaster[postgres]'") from error
    event.listen(engine, "begin", _begin_postgres)
    return engine


def _begin_postgres(connection: Connection) -> None:
    # The promises of SQLite: one snapshot for all that a reader reads, and one writer at a time, who loses no update.
    options = connection.get_execution_options()
    if options.get(WRITE, False):
        # Who is stopped in the middle of a transaction loses it, and with it the lock that everybody waits for.
        timeout = f"SET LOCAL lock_timeout = {int(BUSY_TIMEOUT_S * 1000)}"
        timeout += f"; SET LOCAL idle_in_transaction_session_timeout = {int(options.get(IDLE, IDLE_WRITER_S) * 1000)}"
        connection.exec_driver_sql(f"{timeout}; SELECT pg_advisory_xact_lock({WRITER_LOCK})")
    else:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


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
    except DataError as error:  # PostgreSQL looks at what it is given; SQLite takes it
        raise BadRequestError(f"a value must be one that can be stored: {error.orig}") from error
    except SQLAlchemyError as error:
        text = str(getattr(error, "orig", None) or type(error).__name__)
        if _is_away(error, text):
            raise UnavailableError(f"the planner's store is busy or away: {text}") from error
        raise InternalError(f"the planner's store failed: {type(error).__name__}: {text}") from error


def _is_away(error: SQLAlchemyError, text: str) -> bool:
    """SQLite's operational errors may also be our mistakes; PostgreSQL's are locks, and servers that are gone."""
    if isinstance(error, PoolTimeoutError):  # all connections are in use, and hang
        return True
    original = getattr(error, "orig", None)
    if isinstance(original, sqlite3.Error):
        return (getattr(original, "sqlite_errorcode", 0) & 0xFF) in SQLITE_PASSING or "locked" in text
    return isinstance(error, OperationalError) or bool(getattr(error, "connection_invalidated", False))
