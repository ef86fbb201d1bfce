"""Tokens, sessions and codes in SQL, on both databases."""

from __future__ import annotations

import time

import pytest

from loadmaster_flight.wire.errors import NotFoundError, UnauthenticatedError
from loadmaster_server.store import Grant, Key, Store

ADA = Grant(name="ada", roles=("editor", "process"))
KEY, OTHER = Key(id="a" * 12, hash=b"k" * 32), Key(id="a" * 12, hash=b"o" * 32)


def _later(seconds: float = 60.0) -> float:
    return time.time() + seconds


def test_token_when_found_by_its_secret_then_as_it_was_created(store: Store) -> None:
    made = store.access.create_token(KEY, ADA, by="root", expires_at=None)
    assert store.access.find_token(KEY) == made
    assert (made.grant, made.created_by, made.is_good(time.time())) == (ADA, "root", True)
    assert store.access.find_token(OTHER) is None
    store.access.touch_token(KEY.id, 5.0)
    assert [token.last_used_at for token in store.access.tokens()] == [5.0]


def test_token_when_revoked_then_its_sessions_are_gone_and_others_stay(store: Store) -> None:
    store.access.create_token(KEY, ADA, by="root", expires_at=_later())
    for id_, token in (("b" * 12, KEY.id), ("c" * 12, None)):
        key = Key(id=id_, hash=b"s" * 32)
        store.access.open_session(key, ADA, token=token, agent="x" * 300, address="::1", expires_at=_later())
    for _ in range(2):
        assert not store.access.revoke_token(KEY.id, by="root").is_good(time.time())
    assert [session.id for session in store.access.sessions()] == ["c" * 12]
    actions = [(row.author, row.action) for row in reversed(store.audit.read())]
    assert actions == [("root", "token_created"), ("ada", "signed_in"), ("ada", "signed_in"), ("root", "token_revoked")]
    with pytest.raises(NotFoundError, match="no token 'none'"):
        store.access.revoke_token("none", by="root")


def test_session_when_its_token_was_revoked_meanwhile_then_not_opened(store: Store) -> None:
    store.access.create_token(KEY, ADA, by="root", expires_at=_later())
    store.access.revoke_token(KEY.id, by="root")
    with pytest.raises(UnauthenticatedError, match="revoked meanwhile"):
        store.access.open_session(
            Key(id="b" * 12, hash=b"s" * 32), ADA, token=KEY.id, agent="", address="::1", expires_at=_later()
        )
    assert store.access.sessions() == []


def test_code_when_taken_then_gone_and_another_secret_takes_nothing(store: Store) -> None:
    store.access.add_code(KEY, ADA, by="root", expires_at=_later())
    assert store.access.take_code(OTHER) is None
    assert store.access.take_code(KEY) == ADA
    assert store.access.take_code(KEY) is None


def test_sessions_when_expired_then_not_listed_and_deleted_by_the_next(store: Store) -> None:
    old, new = Key(id="d" * 12, hash=b"d" * 32), Key(id="e" * 12, hash=b"e" * 32)
    store.access.open_session(old, ADA, token=None, agent="", address="", expires_at=_later(-1))
    assert store.access.sessions() == []
    assert store.access.find_session(old) is not None
    store.access.open_session(new, ADA, token=None, agent="", address="", expires_at=_later())
    assert [session.id for session in store.access.sessions("ada")] == [new.id]
    assert store.access.sessions("bob") == []
    assert store.access.find_session(old) is None
    store.access.end_session(new.id, by="ada")
    store.access.end_session(new.id, by="ada")
    assert store.access.find_session(new) is None
