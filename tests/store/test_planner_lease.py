"""The lease of the planner that acts, on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from loadmaster_flight.wire.errors import UnavailableError
from loadmaster_server.store import Database, PlannerLease, Store
from support.synthetic import wait_for

LEASE_S = 0.3
MakeLease = Callable[..., PlannerLease]


@pytest.fixture
def make_lease(database_url: str) -> Iterator[MakeLease]:
    """Leases of planners by name, all on one database."""
    with ExitStack() as stack:

        def make(holder: str, *, place: str = "") -> PlannerLease:
            database = Database(database_url)
            stack.callback(database.close)
            return PlannerLease(database, holder=holder, place=place, lease_s=LEASE_S)

        yield make


def test_lease_when_it_is_free_then_one_gets_it_and_the_other_learns_who(make_lease: MakeLease) -> None:
    first, second = make_lease("first"), make_lease("second")
    assert first.try_acquire()
    assert not second.try_acquire()
    assert (first.is_held, second.is_held, second.holder) == (True, False, "first")


def test_lease_when_it_is_renewed_then_nobody_else_gets_it(make_lease: MakeLease) -> None:
    first, second = make_lease("first"), make_lease("second")
    assert first.try_acquire()
    assert not second.try_acquire()
    wait_for(lambda: not first.is_held, what="most of a lease to pass")
    assert first.renew()
    assert first.is_held
    assert not second.try_acquire()


def test_lease_when_the_holder_is_silent_then_the_other_takes_over_and_fences_it(
    make_lease: MakeLease, database_url: str
) -> None:
    first, second = make_lease("first"), make_lease("second")
    assert first.try_acquire()
    wait_for(second.try_acquire, what="the lease to lapse")
    assert not first.renew()
    assert (first.is_held, first.holder) == (False, "second")
    with pytest.raises(UnavailableError, match="lost its lease to second"):
        Store(database_url, fence=first.check)
    Store(database_url, fence=second.check).close()


def test_lease_when_it_is_given_back_then_free_at_once(make_lease: MakeLease) -> None:
    first, second = make_lease("first"), make_lease("second")
    assert first.try_acquire()
    first.release()
    first.release()
    assert second.try_acquire()


def test_lease_when_the_holder_is_known_to_be_dead_then_free_at_once(make_lease: MakeLease) -> None:
    assert make_lease("first", place="folder").try_acquire()
    assert not make_lease("elsewhere", place="other").try_acquire()
    assert not make_lease("without").try_acquire()
    assert make_lease("again", place="folder").try_acquire()


def test_fence_when_the_lease_is_lost_inside_a_transaction_then_nothing_is_written(
    make_lease: MakeLease, database_url: str
) -> None:
    first, second = make_lease("first"), make_lease("second")
    assert first.try_acquire()
    with Store(database_url, fence=first.check) as store:
        store.runs.retire_idle()
        wait_for(second.try_acquire, what="the lease to lapse")
        with pytest.raises(UnavailableError, match="nothing was written"):
            store.runs.retire_idle()
        assert store.runs.names() == []
