"""PostgreSQL through psycopg 3, with a bound for every wait: a server may be stopped, or cut off without a word."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow
from psycopg.waiting import Ready
from sqlalchemy import URL, Engine, create_engine, event

T = TypeVar("T")
ANSWER_S = 15.0
"""A server from which nothing came for this long is given up; longer than a writer may wait for the others."""
POOL_WAIT_S = 10.0
CONNECT = {
    "connect_timeout": 5,  # seconds, those below too
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}
"""Parameters of libpq: a host that has vanished is noticed within about ten seconds."""


class BoundedConnection(psycopg.Connection[TupleRow]):
    """A connection that closes itself when the server leaves a call without an answer for `ANSWER_S`."""

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Wait for a call.

        Raises:
            OperationalError: Nothing came for too long, or the connection broke.
        """
        try:
            return super().wait(_bounded(gen, ANSWER_S), *args, **kwargs)
        except _SilentError:
            self.close()
            raise


class _SilentError(psycopg.OperationalError):
    pass


def _bounded(gen: PQGen[T], limit_s: float) -> PQGen[T]:
    """The same generator, but for its end when the connection was not ready for so long."""
    until_s = time.monotonic() + limit_s
    try:
        awaited = next(gen)
        while True:
            ready = yield awaited
            if ready != Ready.NONE:
                until_s = time.monotonic() + limit_s
            elif time.monotonic() > until_s:
                raise _SilentError(f"the server has not answered for {limit_s:g} s")
            awaited = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


def create_postgres_engine(url: URL) -> Engine:
    """An engine whose connections are looked at before they are used, and never waited for without end.

    What the URL's query says of a parameter goes before `CONNECT`.
    """
    parameters = {name: value for name, value in CONNECT.items() if name not in url.query}
    engine = create_engine(
        url, connect_args=parameters, pool_pre_ping=True, pool_size=16, max_overflow=64, pool_timeout=POOL_WAIT_S
    )
    event.listen(engine, "do_connect", _connect)
    return engine


def _connect(_dialect: Any, _record: Any, arguments: list[Any], parameters: dict[str, Any]) -> BoundedConnection:
    return BoundedConnection.connect(*arguments, **parameters)
