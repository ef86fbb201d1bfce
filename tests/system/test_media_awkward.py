"""What the web contains: pictures and videos that are cut, empty, too large or none at all, in a run of real processes.

What headers show is left out and another sample of the same source takes its place; what only decoding shows keeps its
place in the batch, without loss and with black pixels.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import loadmaster
from loadmaster_flight.spec import load_run_spec
from loadmaster_flight.wire.control import LeftOutView, from_json
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.freezing import freeze_run
from support.commands import loadmaster_command
from support.media_files import (
    animation,
    bomb_png,
    corners,
    cut_after_frame,
    encoded,
    grey_frames,
    photo,
    video,
    without_moov,
)
from support.media_runs import EXAMPLES, VISION, ReadDocument, image_frames, read_documents, video_frames

pytestmark = pytest.mark.processes
RANKS = 2
NAMES = ["prose", "web", "films"]
GOOD_PICTURES, GOOD_FILMS = 40, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files by name, which is their text as well: good ones, bad ones by their headers, and masked ones."""

    good: dict[str, bytes]
    bad: dict[str, bytes]
    masked: dict[str, bytes]

    @property
    def all(self) -> dict[str, bytes]:
        return dict(sorted({**self.good, **self.bad, **self.masked}.items()))


def pictures() -> Files:
    good = {f"photo {i}": encoded(photo(90, 120, seed=i), "JPEG") for i in range(GOOD_PICTURES)}
    good["animated gif"] = animation([corners(), corners()[::-1]], "GIF")
    jpeg = good["photo 0"]
    bad = {"noise": np.random.default_rng(3).bytes(5000), "nothing": b"", "huge png": bomb_png(), "text": b"<html>"}
    return Files(good=good, bad=bad, masked={"cut jpeg": jpeg[: len(jpeg) // 2]})


def films() -> Files:
    good = {f"film {i}": video(grey_frames(20 + 5 * i)) for i in range(GOOD_FILMS)}
    whole = video(grey_frames(90))
    bad = {"without header": without_moov(whole), "cut film": cut_after_frame(whole, 60)}
    return Files(good=good, bad=bad, masked={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run over them that has ended."""

    documents: list[tuple[int, ReadDocument]]  # with their steps
    left_out: list[LeftOutView]
    status: str
    source_tokens: list[int]
    placed: Counter[str]


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for number, (name, data) in enumerate(files.items()):
            for extension, content in (("img", data), ("txt", name.encode())):
                member = tarfile.TarInfo(f"{number:04d}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def run_spec(folder: Path) -> dict[str, Any]:
    text = {"text": "txt", "eos": "</s>"}
    sources = {
        "prose": {"uri": str(EXAMPLES / "novel/*.parquet"), "transform": text | {"text": "doc.text"}},
        "web": {"uri": str(folder / "web.tar"), "transform": text | {"image": "img"}, "max_bad_ratio": 0.5},
        "films": {
            "uri": str(folder / "films.tar"),
            "transform": text | {"video": "img"},
            "max_bad_ratio": 0.5,
        },
    }
    return {
        "run": "awkward",
        "tokenizer": str(EXAMPLES / "tokenizer.json"),
        "media": {"vision": VISION},
        "sources": sources,
        "mixture": {"weights": {"prose": 0.4, "web": 0.4, "films": 0.2}},
        "batch": {"seq_len": 512, "microbatches": 4, "align": 16},
        "until": {"steps": 6},
    }


def fetch(url: str, rank: int) -> list[pa.RecordBatch]:
    with loadmaster.connect(url, rank=rank, world_size=RANKS, framework="numpy") as stream:
        return [batch.record for batch in stream]


@pytest.fixture
def ended(tmp_path: Path, start_cluster: Callable[..., Any]) -> Ended:
    write_tar(tmp_path / "web.tar", pictures().all)
    write_tar(tmp_path / "films.tar", films().all)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run_spec(tmp_path), sort_keys=False))
    spec = load_run_spec(tmp_path / "run.yaml")
    cluster = start_cluster(spec, freeze_run(spec), loaders=2, constructors=1)
    with ThreadPoolExecutor(RANKS) as pool:
        records = list(pool.map(fetch, [cluster.url] * RANKS, range(RANKS)))
    documents = [
        (step, document)
        for rank in records
        for step, record in enumerate(rank)
        for document in read_documents(record, NAMES)
    ]
    planner = PlannerClient(cluster.url)
    command = loadmaster_command("status", cluster.url)
    status = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    told = json.loads(planner.request("GET", "/runs/awkward/streams/train/left-out"))
    view = json.loads(planner.request("GET", "/runs/awkward/streams/train"))
    planner.close()
    placed: Counter[str] = Counter()
    for _, document in documents:
        placed[document.key[0]] += len(document.labels)
    return Ended(
        documents=documents,
        left_out=[from_json(LeftOutView, one) for one in told],
        status=status,
        source_tokens=view["source_tokens"],
        placed=placed,
    )


def test_run_when_media_are_awkward_then_each_is_right_left_out_or_masked_and_the_mixture_holds(ended: Ended) -> None:
    files = {"web": pictures(), "films": films()}
    frames = {
        name: image_frames(data) if source == "web" else video_frames(data)
        for source, of_source in files.items()
        for name, data in of_source.good.items()
    }
    served: Counter[str] = Counter()
    masked_in: set[int] = set()
    for step, document in ended.documents:
        if document.key[0] == "prose":
            continue
        (found,) = document.pictures
        name = list(files[document.key[0]].all)[document.key[3]]
        served[name] += 1
        if name in frames:
            assert document.text == name
            assert np.array_equal(found, frames[name]), name
            assert (document.labels >= 0).any()
        else:
            assert name == "cut jpeg"
            masked_in.add(step)
            assert not found.any()
            assert (document.labels == -100).all()
    assert served["cut jpeg"] >= 1
    assert {"animated gif", "film 0"} < set(served)
    assert len(served) == GOOD_PICTURES + GOOD_FILMS + 2
    assert_counted(ended, len(masked_in))
    total = sum(ended.placed.values())
    shares = [ended.placed[name] / total for name in NAMES]
    assert ended.source_tokens == [ended.placed[name] for name in NAMES]
    assert np.abs(np.array(shares) - [0.4, 0.4, 0.2]).max() < 0.05


def assert_counted(ended: Ended, masked_steps: int) -> None:
    """Verdicts of rows once, masked samples once for each step that has them."""
    counts = {(view.source, view.verdict): view.count for view in ended.left_out}
    assert counts == {("web", "bad"): 4, ("films", "bad"): 2, ("web", "masked"): masked_steps}
    assert all(view.last_reason for view in ended.left_out)
    for view in ended.left_out:
        assert f"{view.count} {view.verdict}, the last: {view.last_reason}" in ended.status
