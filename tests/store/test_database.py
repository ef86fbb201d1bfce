from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import select, text

from loadmaster_flight.wire.errors import BadRequestError, InternalError, UnavailableError
from loadmaster_server.store import Store
from loadmaster_server.store.models import FactRow


def test_connection_when_sqlite_then_wal_and_foreign_keys(tmp_path: Path) -> None:
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    with Store(f"sqlite:///{tmp_path / 'planner.db'}") as store, store.database.reading() as session:
        values = [session.scalar(text(f"PRAGMA {name}")) for name in pragmas]
    assert values == ["wal", 1, 1, 10_000]


def _add_fact(store: Store, *, then_fail: bool) -> None:
    with store.database.writing() as session:
        session.add(FactRow(name="fact", value=b"hidden"))
        session.flush()
        if then_fail:
            raise ZeroDivisionError


def test_writing_when_it_raises_then_nothing_is_written(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        _add_fact(store, then_fail=True)
    with store.database.reading() as session:
        assert session.get(FactRow, "fact") is None


def test_writing_when_a_constraint_fails_then_internal_error_without_values(store: Store) -> None:
    _add_fact(store, then_fail=False)
    with pytest.raises(InternalError, match=r"(?i)unique") as caught:
        _add_fact(store, then_fail=False)
    assert "hidden" not in str(caught.value)


def test_writing_when_many_threads_read_then_write_then_no_update_is_lost(store: Store) -> None:
    with store.database.writing() as session:
        session.add(FactRow(name="count", value=b"0"))

    def count_up() -> None:
        for _ in range(20):
            with store.database.writing() as session:
                row = session.get_one(FactRow, "count")
                row.value = str(int(row.value) + 1).encode()

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with store.database.reading() as session:
        assert session.scalar(select(FactRow.value).where(FactRow.name == "count")) == b"80"


def test_reading_when_another_writes_meanwhile_then_it_is_one_snapshot(store: Store) -> None:
    _add_fact(store, then_fail=False)
    with store.database.reading() as session:
        before = session.scalars(select(FactRow.name)).all()
        with store.database.writing() as other:
            other.add(FactRow(name="later", value=b""))
        assert session.scalars(select(FactRow.name)).all() == before
    with store.database.reading() as session:
        assert "later" in session.scalars(select(FactRow.name)).all()


@pytest.mark.postgres
def test_writing_when_another_holds_the_lock_too_long_then_unavailable(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadmaster_server.store.database.BUSY_TIMEOUT_S", 0.1)
    with Store(postgres_url) as store, store.database.writing() as session:
        session.add(FactRow(name="first", value=b""))
        session.flush()
        with pytest.raises(UnavailableError, match="lock timeout"):
            _add_fact(store, then_fail=False)


@pytest.mark.postgres
def test_store_when_no_server_answers_then_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="busy or away"):
        Store(f"postgresql://nobody@/nothing?host={tmp_path}")


def test_store_when_opened_again_then_has_the_same_ticket_key(store: Store, url: str) -> None:
    with Store(url) as again:
        assert again.ticket_key == store.ticket_key
    assert len(store.ticket_key) == 32


def test_store_when_folder_is_missing_then_makes_it(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'a' / 'b' / 'planner.db'}"):
        assert (tmp_path / "a" / "b" / "planner.db").is_file()


def test_store_when_the_driver_is_missing_then_it_says_what_to_install() -> None:
    with pytest.raises(BadRequestError, match=r"No module named 'pg8000': pip install 'loadmaster\[postgres\]'"):
        Store("postgresql+pg8000://nobody@/nothing")
