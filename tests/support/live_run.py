"""A run on a real planner, with a loader and a constructor that say what a test lets them say."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from loadmaster_flight.wire.control import CreateRunRequest, RankReport

from .synthetic import Cluster, FakeConstructor, FakeLoader, synthetic_manifest, wait_for

SOURCES = ("web", "code")
BIND_AHEAD = 4


@dataclass(slots=True)
class LiveRun:
    """A run `run` of sources web (share 0.75) and code; its ranks acknowledge when told. One thread calls it."""

    cluster: Cluster
    world_size: int
    spec: dict[str, Any] = field(default_factory=dict)
    loader: FakeLoader = field(init=False)
    constructor: FakeConstructor = field(init=False)
    generation: int = field(init=False)
    step: int = 0

    def __post_init__(self) -> None:
        self.loader = self.cluster.loader()
        self.constructor = self.cluster.constructor()
        tree: dict[str, Any] = {
            "run": "run",
            "sources": {name: {"uri": f"{name}.jsonl", "transform": {"text": "text"}} for name in SOURCES},
            "mixture": {"weights": {"web": 3, "code": 1}},
            "batch": {"seq_len": 64, "microbatches": 4},
            "budgets": {"plan_ahead": 12, "bind_ahead": BIND_AHEAD, "build_ahead": 2},
        }
        manifests = [synthetic_manifest(i, name) for i, name in enumerate(SOURCES)]
        self.cluster.client.request("POST", "/runs", body=CreateRunRequest(spec=tree | self.spec, manifests=manifests))
        self.generation = self.cluster.open(self.world_size)
        wait_for(lambda: self.constructor.assignments, what="the ranks to be assigned")
        self.cluster.planned(12)

    def read(self, path: str, **query: Any) -> Any:
        """An answer of the API below the run."""
        return json.loads(self.cluster.client.request("GET", f"/runs/run{path}", query=query))

    def post(self, path: str, body: dict[str, Any], *, if_match: str) -> Any:
        """Ask for a change."""
        connection = http.client.HTTPConnection(urlsplit(self.cluster.server.url).netloc, timeout=10)
        headers = {"content-type": "application/json", "if-match": if_match}
        connection.request("POST", f"/api/v1/runs/run{path}", json.dumps(body), headers)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        assert answer.status < 300, told
        return told

    def acknowledge(self, step: int, *, waits: list[float] | None = None, **report: Any) -> None:
        """All ranks have consumed the steps before this one; each waited so long for the last of them.

        Keywords replace columns of the report, such as `acknowledged` where some have consumed less.
        """
        if step - self.step > BIND_AHEAD:
            self.acknowledge(step - BIND_AHEAD)
        self.step = step
        ranks = list(range(self.world_size))
        columns: dict[str, Any] = {
            "ranks": ranks,
            "acknowledged": [step] * len(ranks),
            "seen_s": [0.1] * len(ranks),
            "moved_s": [0.1] * len(ranks),
            "hosts": {"node-0": ranks},
        }
        if waits is not None:
            columns |= {"wait_rank": ranks, "wait_step": [step - 1] * len(ranks), "wait_s": waits}
        self.cluster.plans(step - 1, step, generation=self.generation, bind=True)
        columns |= report
        self.constructor.ranks = RankReport(**columns)
        self.constructor.acknowledge(step)
        by_all = min(columns["acknowledged"])
        wait_for(lambda: self.read("/overview")["acknowledged"] >= by_all, what=f"step {by_all} to be acknowledged")

    @contextmanager
    def events(self, run: str | None = "run") -> Iterator[EventReader]:
        """A connection that reads events in a thread of its own."""
        url = f"{self.cluster.server.url}/api/v1/events" + (f"?run={run}" if run else "")
        reader = EventReader(url)
        try:
            yield reader
        finally:
            reader.close()


class EventReader:
    """Reads server-sent events until it is closed, or the planner ends them.

    Attributes:
        events: Name and data of each, in order.
        ids: Of each.
        is_over: The stream has ended.
    """

    def __init__(self, url: str) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.ids: list[str] = []
        self.num_beats = 0
        self._over = threading.Event()
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname or "", address.port or 80), 10)
        self._socket.settimeout(60)
        target = f"{address.path}?{address.query}"
        self._socket.sendall(f"GET {target} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        self._response = http.client.HTTPResponse(self._socket, method="GET")
        self._response.begin()
        assert self._response.status == 200, self._response.read()
        self._thread = threading.Thread(target=self._read, name="test_read", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def wait_over(self, timeout_s: float) -> bool:
        """Whether the stream ended within that time."""
        return self._over.wait(timeout_s)

    def named(self, name: str) -> list[dict[str, Any]]:
        """Data of the events of a name."""
        return [data for found, data in list(self.events) if found == name]

    def wait_named(self, name: str, num: int = 1) -> list[dict[str, Any]]:
        """The same, once there are so many."""
        return wait_for(lambda: found if len(found := self.named(name)) >= num else None, what=f"{num} x {name}")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._response.close()
        self._socket.close()

    def _read(self) -> None:
        name = ""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):  # closed by the test
            while line := self._response.readline().decode():
                field_name, _, value = line.rstrip("\n").partition(": ")
                if field_name == "id":
                    self.ids.append(value)
                elif field_name == "event":
                    name = value
                elif field_name == "data":
                    self.events.append((name, json.loads(value)))
                self.num_beats += line.startswith(":")
        self._over.set()
