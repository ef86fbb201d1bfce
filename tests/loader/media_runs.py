"""A run over pictures, clips and sounds, each of which says which row it is of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.transforms import build_transform
from support.media_files import encoded, grey_frames, sine, video, wav

PICTURES, CLIPS = 0, 1
IMAGE, VIDEO, AUDIO = 390, 391, 392
Frozen = tuple[RunSpec, list[SourceManifest]]


def colour(row: int) -> tuple[int, int, int]:
    return (row % 256, 255 - row % 256, (7 * row) % 256)


def picture(row: int) -> bytes:
    """A picture of one colour, of a size of its own."""
    size = (56 + 28 * (row % 3), 56 + 28 * (row % 5))
    return encoded(Image.new("RGB", size, colour(row)), "PNG")


@pytest.fixture(scope="session")
def media_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in Parquet (some rows without, some broken), and clips and sounds that JSONL names by path."""
    folder = tmp_path_factory.mktemp("media")
    rows: list[dict[str, Any]] = []
    for row in range(120):
        pictures = [picture(row)] if row % 4 else [picture(row), picture(row + 1000)]
        if row % 10 == 7:
            pictures = []
        if row == 33:
            pictures = [picture(row)[:20]]
        text = f"row {row}" + "<image>" * (row % 2 * len(pictures))
        rows.append({"text": text, "image": [{"bytes": data, "path": None} for data in pictures]})
    pq.write_table(pa.Table.from_pylist(rows), folder / "pictures.parquet", row_group_size=30)
    lines = []
    for row in range(6):
        (folder / f"clip-{row}.mp4").write_bytes(video(grey_frames(8 + row, 56, 84), rate=4))
        (folder / f"sound-{row}.wav").write_bytes(wav(sine(3200 + 160 * row, 16_000, hertz=300 + row), 16_000))
        lines.append({"text": f"clip {row}", "clip": f"clip-{row}.mp4", "sound": f"sound-{row}.wav"})
    lines[4]["clip"] = "none.mp4"
    (folder / "clips.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


@pytest.fixture
def freeze_media(media_corpus: Path, tokenizer_file: Path) -> Callable[..., Frozen]:
    """A frozen run over the pictures and clips; `vision` are fields of media.vision, the others budgets."""

    def make(*, folder: Path = media_corpus, vision: dict[str, Any] | None = None, **budgets: int) -> Frozen:
        pictures = {"text": "text", "image": "image"}
        clips = {"text": "text", "video": "clip", "audio": "sound"}
        sources: dict[str, Any] = {
            "pictures": {"uri": str(folder / "pictures.parquet"), "transform": pictures, "lanes": 2},
            "clips": {"uri": str(folder / "clips.jsonl"), "transform": clips, "lanes": 1},
        }
        for source in sources.values():
            source["transform"]["eos"] = "</s>"
        tree = {
            "run": "small",
            "seed": 3,
            "tokenizer": str(tokenizer_file),
            "vocab_size": 400,
            "sources": sources,
            "batch": {"seq_len": 256, "microbatches": 4},
            "media": {
                "vision": {"image_token": IMAGE, "video_token": VIDEO} | (vision or {}),
                "audio": {"audio_token": AUDIO, "merge": 2},
            },
            "budgets": budgets,
        }
        spec = RunSpec.model_validate(tree)
        return spec, [frozen(spec, name, folder) for name in spec.sources]

    return make


def frozen(spec: RunSpec, name: str, folder: Path) -> SourceManifest:
    return freeze_source(
        name,
        spec.source_names.index(name),
        spec.sources[name],
        base_dir=folder,
        shuffle_bytes=1 << 20,
        fingerprint=build_transform(spec, name).fingerprint,
    )
