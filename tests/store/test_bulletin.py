from __future__ import annotations

import threading
import time

from loadmaster_server.store import Bulletin


def test_wait_when_posted_before_then_returns_at_once() -> None:
    bulletin = Bulletin()
    seen = bulletin.seen("a")
    bulletin.post("a")
    assert bulletin.wait("a", seen, 60.0)


def test_wait_when_another_topic_is_posted_then_times_out() -> None:
    bulletin = Bulletin()
    seen = bulletin.seen("a")
    bulletin.post("b")
    assert not bulletin.wait("a", seen, 0.01)


def test_wait_when_posted_meanwhile_then_wakes() -> None:
    bulletin = Bulletin()
    threading.Timer(0.02, bulletin.post, ["a"]).start()
    assert bulletin.wait("a", 0, 60.0)


def test_close_when_somebody_waits_then_wakes_and_later_waits_return() -> None:
    bulletin = Bulletin()
    threading.Timer(0.02, bulletin.close).start()
    began_s = time.monotonic()
    assert not bulletin.wait("a", 0, 60.0)
    assert not bulletin.wait("a", 0, 60.0)
    assert time.monotonic() - began_s < 30
    assert bulletin.is_closed
