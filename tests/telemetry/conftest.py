"""A planner, a loader and a constructor as processes that log JSON and answer scrapes, and a rank that reads."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import loadmaster
from loadmaster_flight.spec import load_run_spec
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.tracing import shutdown_tracing
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import ClusterSize, LocalCluster
from support.collector import Collector
from support.scraped import Scraped, scrape
from support.synthetic import wait_for

STEPS, BAD_EVERY, ROWS = 12, 20, 600
WORDS = ("loader", "manifest", "balance", "weight", "hold", "cargo", "flight", "deck")


@dataclass(slots=True, kw_only=True)
class Plane:
    """What runs. One thread uses it."""

    cluster: LocalCluster
    metrics_port: int
    stream: loadmaster.Stream
    collector: Collector

    def scrape(self, role: str) -> Scraped:
        """What one of them answers now."""
        ports = {"loader": self.metrics_port, "constructor": self.metrics_port + 1}
        url = self.cluster.url if role == "planner" else f"http://127.0.0.1:{ports[role]}"
        return scrape(f"{url}/metrics")

    def log(self, name: str) -> list[dict[str, Any]]:
        """Lines of one's log."""
        return [json.loads(line) for line in self.cluster.log_path(name).read_text().splitlines()]


def _write(folder: Path, name: str, seed: int) -> str:
    """A JSONL source of which every so many rows are broken."""
    draw = random.Random(seed)
    rows = [json.dumps({"text": " ".join(draw.choices(WORDS, k=draw.randint(3, 40)))}) for _ in range(ROWS)]
    rows[::BAD_EVERY] = ["{broken"] * len(rows[::BAD_EVERY])
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def _free_ports() -> int:
    """The first of two neighbouring ports that are free now."""
    while True:
        with closing(socket.create_server(("127.0.0.1", 0))) as first:
            port: int = first.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Iterator[Plane]:
    """One rank has consumed some steps of two sources, and waits."""
    folder, port = tmp_path_factory.mktemp("telemetry"), _free_ports()
    spec = {
        "run": "watched",
        "tokenizer": str(tokenizer_file),
        "sources": {
            name: {"uri": _write(folder, name, seed), "transform": {"text": "text"}}
            for seed, name in enumerate(("web", "code"))
        },
        "mixture": {"weights": {"web": 3, "code": 1}},
        "batch": {"seq_len": 256, "microbatches": 4},
        "budgets": {"plan_ahead": 16, "bind_ahead": 8, "build_ahead": 3},
        "until": {"steps": 1000},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(spec))
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("LOADMASTER_LOG_FORMAT", "json")
        patch.setenv("LOADMASTER_LOG_LEVEL", "debug")
        collector = stack.enter_context(Collector())
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        stack.callback(shutdown_tracing)
        cluster = LocalCluster(state_dir=folder / "state", size=ClusterSize(workers=1), metrics_port=port)
        stack.callback(cluster.stop)
        cluster.start()
        run = load_run_spec(folder / "run.yaml")
        cluster.create_run(run, freeze_run(run))
        stream = stack.enter_context(loadmaster.connect(cluster.url, rank=0, world_size=1, framework="numpy"))
        for batch in stream:
            if batch.step == STEPS:
                break
        client = stack.enter_context(closing(PlannerClient(cluster.url)))

        def has_told() -> bool:
            told = json.loads(client.request("GET", "/runs/watched/streams/train"))
            return bool(told["acknowledged"] >= STEPS)

        wait_for(has_told, what="the steps to be acknowledged")
        yield Plane(cluster=cluster, metrics_port=port, stream=stream, collector=collector)
