"""The numbers of real processes: loaders, constructors and ranks that read example pictures over the wire."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image, ImageOps

import loadmaster
from loadmaster_flight.spec import load_run_spec
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import ClusterSize, LocalCluster
from support.media_runs import ExampleFiles, media_run
from support.synthetic import wait_for

pytestmark = pytest.mark.processes
WORLD, STEP_S = 2, 0.5


@contextlib.contextmanager
def paced_ranks(url: str) -> Iterator[None]:
    """Ranks in threads, that take a step every so often."""
    stop = threading.Event()

    def train(rank: int) -> None:
        with loadmaster.connect(url, rank=rank, world_size=WORLD, framework="numpy") as stream:
            for _ in stream:
                if stop.wait(STEP_S):
                    return

    threads = [threading.Thread(target=train, args=[rank], daemon=True) for rank in range(WORLD)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Reads answers about a run of two ranks that take a step every half second and have consumed a few."""
    folder = tmp_path_factory.mktemp("live")
    (folder / "run.yaml").write_text(yaml.safe_dump(media_run(until={"steps": 10_000}), sort_keys=False))
    spec = load_run_spec(folder / "run.yaml")
    with contextlib.ExitStack() as stack:
        cluster = LocalCluster(state_dir=folder / "state", size=ClusterSize(loaders=1, constructors=1))
        stack.callback(cluster.stop)
        cluster.start()
        cluster.create_run(spec, freeze_run(spec))
        stack.enter_context(paced_ranks(cluster.url))
        client = stack.enter_context(contextlib.closing(PlannerClient(cluster.url)))

        def ask(path: str, **query: Any) -> Any:
            return json.loads(client.request("GET", f"/runs/media{path}", query=query))

        wait_for(lambda: len(ask("/overview")["waits"]["step"]) >= 8, what="eight steps to be told of", deadline_s=120)
        yield ask


def test_overview_when_ranks_read_then_every_step_has_a_wait_of_every_rank(read: Any) -> None:
    told = wait_for(lambda: found if (found := read("/overview"))["wait_share"] is not None else None, what="a pace")
    assert set(told["waits"]["num_ranks"][:-2]) == {WORLD}
    assert all(
        0 <= mean <= longest for mean, longest in zip(told["waits"]["mean_s"], told["waits"]["max_s"], strict=True)
    )
    assert told["step_s"] > 0.8 * STEP_S
    assert told["tokens_per_s"] > 0
    assert 0 <= told["wait_share"] <= 1
    assert 0 < told["fill"] <= told["occupancy"] <= 1


def test_mesh_when_ranks_read_then_they_say_where_they_run(read: Any) -> None:
    ranks = read("/mesh")["ranks"]
    assert ranks["host"] == [socket.gethostname()[:64]] * WORLD
    assert ranks["state"] == ["ok"] * WORLD
    assert all(wait is not None and wait >= 0 for wait in ranks["last_wait_s"])


def test_graph_when_processes_count_their_time_then_each_stage_has_all_of_it(read: Any) -> None:
    def loaded() -> list[dict[str, Any]] | None:
        stages = [node for node in read("/graph")["nodes"] if node["kind"] != "source-group"]
        return stages if all(node["busy"] is not None for node in stages) else None

    nodes = wait_for(loaded, what="all loads", deadline_s=120)
    for node in nodes:
        assert node["busy"] + node["blocked"] + node["idle"] == pytest.approx(1, abs=0.01)


def test_sources_when_blocks_were_read_then_their_times_are_told(read: Any) -> None:
    rows = {row["name"]: row for row in read("/sources/health")["rows"]}
    assert set(rows) == {"prose", "pictures", "clips"}
    for row in rows.values():
        assert row["reads"] > 0
        assert 0 < row["read_p50_ms"] <= row["read_p99_ms"]
        assert (row["errors"], row["state"]) == (0, "ok")


def test_step_when_images_are_asked_for_then_they_are_small_pictures_of_the_files(read: Any) -> None:
    files, shown = ExampleFiles(), 0
    for step in range(6):
        told = read(f"/steps/{step}", rank=0, images=True)
        for piece in told["pieces"]:
            num_images = len(piece["images"]) + piece["more_images"]
            assert (num_images > 0) == (piece["source"] == "pictures")
            key = ("pictures", piece["shard"], piece["block"], piece["row"])
            for picture in piece["images"]:
                assert_small_picture(picture, files.data(key))
                shown += 1
        assert sum(len(piece["images"]) for piece in told["pieces"]) <= 24
    assert shown > 0


def assert_small_picture(picture: dict[str, Any], data: bytes) -> None:
    """A small picture of a file: another library sees nearly the same."""
    small = Image.open(io.BytesIO(base64.b64decode(picture["src"].removeprefix("data:image/jpeg;base64,"))))
    assert small.size == (picture["width"], picture["height"])
    assert (small.format, small.mode) == ("JPEG", "RGB")
    assert max(small.size) <= 160
    shown = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGBA")
    whole = Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown).convert("RGB").resize(small.size)
    difference = np.abs(np.asarray(small, np.int16) - np.asarray(whole, np.int16))
    assert difference.mean() < 16


def test_step_when_images_of_all_ranks_are_asked_for_then_refused(read: Any) -> None:
    with pytest.raises(BadRequestError, match="a rank or a microbatch"):
        read("/steps/0", images=True)
