from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import select, text

from loadmaster_flight.wire.errors import InternalError
from loadmaster_server.store import Store
from loadmaster_server.store.models import FactRow


def test_connection_when_sqlite_then_wal_and_foreign_keys(store: Store) -> None:
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    with store.database.reading() as session:
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
    with pytest.raises(InternalError, match="UNIQUE") as caught:
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


def test_store_when_opened_again_then_has_the_same_ticket_key(store: Store, url: str) -> None:
    with Store(url) as again:
        assert again.ticket_key == store.ticket_key
    assert len(store.ticket_key) == 32


def test_store_when_folder_is_missing_then_makes_it(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'a' / 'b' / 'planner.db'}"):
        assert (tmp_path / "a" / "b" / "planner.db").is_file()
