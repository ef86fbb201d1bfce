"""A planner whose database is cut off, locked or stopped: it says so, loses nobody, and goes on by itself."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from loadmaster.cli.actors import list_actors
from loadmaster_flight.wire.control import CreateRunRequest, RunView
from loadmaster_flight.wire.errors import LoadmasterError, UnavailableError
from loadmaster_server.store import Database
from support.severing import SeveringProxy, to_file
from support.synthetic import Cluster, wait_for
from support.temporary_postgres import Cluster as Postgres

MakeRun = Callable[..., CreateRunRequest]
MakeCluster = Callable[..., Cluster]
LEASE_S = 1.0


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def cuttable(
    request: pytest.FixtureRequest, make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Cluster, SeveringProxy | None]]:
    """A planner, and the way to its PostgreSQL database."""
    if request.param == "sqlite":
        monkeypatch.setattr("loadmaster_server.store.database.BUSY_TIMEOUT_S", 0.2)
        yield make_cluster(planner_lease_s=LEASE_S), None
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    name = postgres.new_database().split("?", 1)[0].rsplit("/", 1)[1]
    with SeveringProxy(to_file(postgres.folder / ".s.PGSQL.5432"), frozenset) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}"
        yield make_cluster(planner_lease_s=LEASE_S, database_url=url), proxy


@contextmanager
def _cut(cluster: Cluster, proxy: SeveringProxy | None) -> Iterator[None]:
    """All connections are lost, and new ones refused; on SQLite, somebody has the file locked."""
    if proxy is not None:
        proxy.pause()
        yield
        proxy.resume()
        return
    with closing(sqlite3.connect(cluster.state_dir / "planner.db", timeout=30)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()


def _planner_threads() -> set[str]:
    names = {thread.name for thread in threading.enumerate()}
    return {name for name in names if name in ("actors", "plan-supervisor", "retention") or name.startswith("plan run")}


def _is_refused(cluster: Cluster) -> UnavailableError | None:
    try:
        list_actors(cluster.client)
    except UnavailableError as error:
        return error
    return None


def test_planner_when_its_database_is_cut_off_then_503_with_the_reason_and_it_goes_on_where_it_was(
    cuttable: tuple[Cluster, SeveringProxy | None], make_run: MakeRun
) -> None:
    cluster, proxy = cuttable
    cluster.client.post("/runs", make_run(), RunView)
    cluster.loader()
    constructor = cluster.constructor()
    cluster.open(1)
    cluster.planned(12)
    cluster.planned(4, bind=1)
    before, threads = list_actors(cluster.client), _planner_threads()
    assert len(threads) == 4
    with _cut(cluster, proxy):
        refused = wait_for(lambda: _is_refused(cluster), what="the planner to say that it cannot act")
        assert "could not renew its lease: the planner's store is busy or away" in str(refused)
        constructor.acknowledge(4)
        gone = threading.Event()
        assert not gone.wait(2 * cluster.lease_s)  # all heartbeats are refused for longer than a lease
    wait_for(lambda: not _is_refused(cluster), what="answers", deadline_s=5.0)
    wait_for(lambda: len(_planned(cluster, first=12)) == 4, what="the next plans", deadline_s=5.0)
    assert [actor.actor_id for actor in list_actors(cluster.client)] == [actor.actor_id for actor in before]
    assert _planner_threads() == threads


def _planned(cluster: Cluster, *, first: int) -> list[object]:
    try:
        return list(cluster.plans(first, first + 64))
    except LoadmasterError:
        return []


@pytest.mark.postgres
def test_reading_when_the_server_is_stopped_then_unavailable_and_the_next_one_is_answered(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadmaster_server.store.postgres.ANSWER_S", 0.5)
    database = Database(postgres.new_database())
    with pytest.raises(UnavailableError, match=r"the server has not answered for 0\.5 s"):
        _ask_a_stopped_server(database)
    with database.reading() as session:
        assert session.execute(text("SELECT 1")).scalar_one() == 1
    database.close()


def _ask_a_stopped_server(database: Database) -> None:
    with database.reading() as session:
        pid = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        os.kill(pid, signal.SIGSTOP)
        try:
            session.execute(text("SELECT 1"))
        finally:
            os.kill(pid, signal.SIGCONT)
