"""A stream whose server is silent is ended when the server is gone, and only then."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.errors import DeadlineError
from loadmaster_flight.wire.flight import FlightPeer, FlightService
from loadmaster_flight.wire.watchdog import ReadWatchdog, answers

BATCH = pa.record_batch({"step": [1]})
QUIET_S = 0.2


class SlowService(FlightService):
    """Sends one message at once, and the next when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_send = threading.Event()

    def stream(self, ticket: bytes, context: fl.ServerCallContext) -> fl.FlightDataStream:
        def messages() -> Iterator[pa.RecordBatch]:
            yield BATCH
            self.may_send.wait(30)
            yield BATCH

        return fl.GeneratorStream(BATCH.schema, messages())

    def act(self, action: Action, body: dict[str, object]) -> dict[str, object]:
        return {"status": "ok"}


@pytest.fixture
def service() -> Iterator[SlowService]:
    """A server that takes its time."""
    service = SlowService()
    yield service
    service.may_send.set()
    service.stop(grace_s=1.0)


def test_read_when_the_server_is_gone_then_deadline_error_soon(service: SlowService) -> None:
    with FlightPeer(service.address) as peer:
        reader = peer.open(b"")
        with ReadWatchdog(reader, what="server", is_there=lambda: False, quiet_s=QUIET_S) as watchdog:
            assert watchdog.read()[0] == BATCH
            start_s = time.monotonic()
            with pytest.raises(DeadlineError, match=r"server: no message for 0\.2 s, and it does not answer"):
                watchdog.read()
            assert time.monotonic() - start_s < 10


def test_read_when_the_message_takes_long_and_the_server_is_there_then_it_is_waited_for(service: SlowService) -> None:
    asked = []

    def is_there() -> bool:
        asked.append(time.monotonic())
        if len(asked) == 3:
            service.may_send.set()
        return answers(service.address, timeout_s=10)

    with FlightPeer(service.address) as peer:
        reader = peer.open(b"")
        with ReadWatchdog(reader, what="server", is_there=is_there, quiet_s=QUIET_S) as watchdog:
            assert [watchdog.read()[0] for _ in range(2)] == [BATCH, BATCH]
    assert len(asked) >= 3
    assert asked[1] - asked[0] >= QUIET_S


def test_read_when_a_message_takes_too_long_then_deadline_error_though_the_server_is_there(
    service: SlowService,
) -> None:
    with FlightPeer(service.address) as peer:
        reader = peer.open(b"")
        with ReadWatchdog(
            reader, what="server", is_there=lambda: True, quiet_s=QUIET_S, timeout_s=2 * QUIET_S
        ) as watchdog:
            watchdog.read()
            with pytest.raises(DeadlineError, match=r"server: no message for 0\.4 s$"):
                watchdog.read()


def test_answers_when_there_stopped_or_gone_then_only_who_is_there_does(service: SlowService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        ports = [service.port, stopped.getsockname()[1]]
        found = [
            answers(f"grpc://127.0.0.1:{port}", timeout_s=limit_s)
            for port, limit_s in zip(ports, [10, 0.3], strict=True)
        ]
    assert found == [True, False]
    assert not answers(f"grpc://127.0.0.1:{ports[1]}", timeout_s=0.3)
