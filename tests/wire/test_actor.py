"""The planner link against a real HTTP server that can forget, break off and restart."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from loadmaster_flight.wire.actor import ActorLink, ActorReport
from loadmaster_flight.wire.control import HeartbeatReply, Role, StreamProgress
from loadmaster_flight.wire.errors import NotFoundError, NotReadyError, to_problem

LEASE = {"run": "r", "source": 0, "partition": 0, "partitions": 1}


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
    until = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen"
        threading.Event().wait(0.005)


class FakePlanner:
    """Answers registrations and heartbeats; `known` are the actors it remembers."""

    def __init__(self, port: int = 0) -> None:
        self.registrations: list[dict[str, Any]] = []
        self.heartbeats: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.known: set[str] = set()
        self.connections: list[socket.socket] = []
        self.key = "ab" * 16
        self.heartbeat_s = 0.01
        planner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.answer(*planner.post(self.path, body))

            def do_DELETE(self) -> None:
                planner.deleted.append(self.path.rsplit("/", 1)[-1])
                self.answer(200, {})

            def answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def setup(self) -> None:
                super().setup()
                planner.connections.append(self.connection)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path == "/api/v1/actors":
            self.registrations.append(body)
            actor = f"actor-{len(self.registrations)}"
            self.known.add(actor)
            beat = {"heartbeat_s": self.heartbeat_s, "lease_s": 30.0}
            return 200, {"actor_id": actor, "ticket_key_hex": self.key, **beat}
        actor = path.split("/")[-2]
        if actor not in self.known:
            return 404, to_problem(NotFoundError(f"no actor {actor}"))
        self.heartbeats.append(body)
        return 200, {"leases": [LEASE]}

    def close(self) -> None:
        self.server.shutdown()
        for connection in self.connections:  # a process that ends takes kept connections with it
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    fake = FakePlanner()
    yield fake
    fake.close()


@pytest.fixture
def make_link() -> Iterator[Callable[..., ActorLink]]:
    links: list[ActorLink] = []

    def make(url: str, **changes: Any) -> ActorLink:
        arguments: dict[str, Any] = {"role": Role.LOADER, "address": "grpc://127.0.0.1:1", "on_desired": lambda _: None}
        link = ActorLink(url, **(arguments | changes))
        links.append(link)
        link.start()
        return link

    yield make
    for link in links:
        link.close(leave=False)


def test_link_when_planner_answers_hands_on_desired_state(planner: FakePlanner, make_link: Any) -> None:
    desired: list[HeartbeatReply] = []
    link = make_link(planner.url, on_desired=desired.append, capacity_bytes=7)
    wait_until(lambda: len(desired) >= 2, "a second heartbeat")
    assert desired[0].leases[0].source == 0
    assert desired[0].leases[0].run == "r"
    assert planner.registrations[0]["role"] == "loader"
    assert planner.registrations[0]["capacity_bytes"] == 7
    assert link.actor_id == "actor-1"
    assert link.ticket_key == bytes.fromhex(planner.key)
    assert link.has_lease


def test_link_when_reporting_sends_progress_and_stats(planner: FakePlanner, make_link: Any) -> None:
    progress = StreamProgress(run="r", stream="train", generation=3, step=9)
    make_link(planner.url, report=lambda: ActorReport(acknowledged=[progress], stats={"window_bytes": 5.0}))
    wait_until(lambda: bool(planner.heartbeats), "a heartbeat")
    assert planner.heartbeats[0]["acknowledged"][0]["step"] == 9
    assert planner.heartbeats[0]["stats"] == {"window_bytes": 5.0}


def test_link_when_forgotten_registers_again_with_same_incarnation(planner: FakePlanner, make_link: Any) -> None:
    link = make_link(planner.url)
    wait_until(lambda: bool(planner.heartbeats), "a heartbeat")
    planner.key = "cd" * 16
    planner.known.clear()
    wait_until(lambda: link.actor_id == "actor-2", "a second registration")
    assert planner.registrations[0]["incarnation"] == planner.registrations[1]["incarnation"] == link.incarnation
    assert link.ticket_key == bytes.fromhex("cd" * 16)


def test_link_when_planner_restarts_registers_again_and_logs_once(
    make_link: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = FakePlanner()
    link = make_link(first.url)
    wait_until(lambda: bool(first.heartbeats), "a heartbeat")
    first.close()
    wait_until(lambda: bool(caplog.records), "the complaint")
    second = FakePlanner(first.port)
    try:
        wait_until(lambda: bool(second.heartbeats), "a heartbeat at the new planner")
        assert second.registrations[0]["incarnation"] == link.incarnation
    finally:
        link.close(leave=False)
        second.close()
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1


def test_link_when_planner_is_not_up_yet_waits_and_then_registers(make_link: Any) -> None:
    port_holder = FakePlanner()
    port_holder.close()
    link = make_link(port_holder.url)
    assert not link.wait_registered(0.05)
    with pytest.raises(NotReadyError, match=r"loader grpc://127.0.0.1:1"):
        _ = link.ticket_key
    assert not link.has_lease
    planner = FakePlanner(port_holder.port)
    try:
        assert link.wait_registered(20.0)
    finally:
        link.close(leave=False)
        planner.close()


def test_link_when_a_callback_fails_goes_on_and_counts(planner: FakePlanner, make_link: Any) -> None:
    def fail(_: HeartbeatReply) -> None:
        raise ValueError("cannot reconcile")

    link = make_link(planner.url, on_desired=fail)
    wait_until(lambda: len(planner.heartbeats) >= 3, "three heartbeats")
    assert link.num_callback_errors >= 2
    assert len(planner.registrations) == 1


def test_link_when_told_to_beat_does_not_wait_for_the_pause(planner: FakePlanner, make_link: Any) -> None:
    planner.heartbeat_s = 60.0
    link = make_link(planner.url)
    wait_until(lambda: len(planner.heartbeats) == 1, "the first heartbeat")
    link.beat()
    wait_until(lambda: len(planner.heartbeats) == 2, "the second heartbeat")


def test_link_when_closed_leaves_once_and_ends_its_thread(planner: FakePlanner, make_link: Any) -> None:
    planner.heartbeat_s = 60.0
    link = make_link(planner.url)
    wait_until(lambda: bool(planner.heartbeats), "a heartbeat")
    link.close()
    link.close()
    assert planner.deleted == ["actor-1"]
    assert not [t for t in threading.enumerate() if t.name == "planner-link" and t is link._thread]
