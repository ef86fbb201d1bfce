"""Which ports refuse."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

from loadmaster_flight.wire.probing import refusing


def _closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"grpc://127.0.0.1:{listener.getsockname()[1]}"


def test_refusing_when_nobody_listens_then_named_and_who_listens_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there, gone = f"grpc://127.0.0.1:{listener.getsockname()[1]}", _closed_port()
        assert refusing([there, gone]) == {gone}
    assert refusing([there]) == {there}


def test_refusing_when_nobody_answers_then_not_named_and_the_wait_is_bounded() -> None:
    with ExitStack() as stack:
        mute = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # its queue is full: what comes now gets no answer
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(mute.getsockname())
        start_s = time.monotonic()
        assert refusing([f"grpc://127.0.0.1:{mute.getsockname()[1]}"] * 20, timeout_s=0.2) == set()
        assert time.monotonic() - start_s < 5


def test_refusing_when_nothing_is_asked_then_nothing() -> None:
    assert refusing([]) == set()
