"""Documents read back from batches, text and pictures, and the same read from the files themselves.

# P = patches, D = numbers of a patch, T = frames, H, W = pixels
"""

from __future__ import annotations

import io
import itertools
import json
import math
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from tokenizers import Tokenizer

from loadmaster.documents import documents_of
from loadmaster_flight.transforms.image import decode_image, image_size
from loadmaster_flight.transforms.limits import MediaLimits
from loadmaster_flight.transforms.patches import smart_resize
from loadmaster_flight.transforms.video import chosen_times, decode_video, probe_video
from loadmaster_flight.wire.slicing import SlicePlace

EXAMPLES = Path(__file__).parents[2] / "examples/data"
PATCH, MERGE, TEMPORAL = 14, 2, 2
MIN_PIXELS, MAX_PIXELS, MAX_FRAMES = 56 * 56, 112 * 112, 4
VISION = {"min_pixels": MIN_PIXELS, "max_pixels": MAX_PIXELS, "max_frames": MAX_FRAMES}
LIMITS = MediaLimits(max_bytes=64 << 20, max_pixels=100_000_000)
Pixels = npt.NDArray[np.uint8]


def media_sources() -> dict[str, Any]:
    """The example pictures, clips and prose, as sources of a run."""
    return {
        "prose": {"uri": str(EXAMPLES / "novel/*.parquet"), "transform": {"text": "doc.text", "eos": "</s>"}},
        "pictures": {
            "uri": str(EXAMPLES / "pictures/*.tar"),
            "transform": {"text": "txt", "image": "jpg;png", "eos": "</s>"},
        },
        "clips": {
            "uri": str(EXAMPLES / "clips"),
            "format": "folder",
            "transform": {"text": "caption", "video": "video", "eos": "</s>"},
        },
    }


def media_run(**changes: Any) -> dict[str, Any]:
    """A run spec over them: pictures of at most 8 by 8 patches."""
    spec: dict[str, Any] = {
        "run": "media",
        "seed": 7,
        "tokenizer": str(EXAMPLES / "tokenizer.json"),
        "media": {"vision": VISION},
        "sources": media_sources(),
        "mixture": {"weights": {"prose": 0.4, "pictures": 0.4, "clips": 0.2}},
        "batch": {"seq_len": 512, "microbatches": 8, "align": 16},
        "until": {"steps": 8},
    }
    return spec | changes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDocument:
    """One document of a microbatch.

    Attributes:
        key: source, shard, block, row.
        text: Without special tokens.
        pictures: Frames of each image (one) and video, uint8 (T, H, W, 3).
        labels: Its labels, with -100 where there is no loss.
    """

    key: tuple[str, int, int, int]
    text: str
    pictures: list[Pixels]
    labels: npt.NDArray[np.int32]


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(EXAMPLES / "tokenizer.json"))


def rows_of(record: pa.RecordBatch, name: str, m: int) -> npt.NDArray[Any]:
    """A ragged field of one microbatch as an array with one row an entry."""
    values = record.column(name)[m].values
    if pa.types.is_fixed_size_list(values.type):
        width = values.type.list_size
        flat = values.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(-1, width)
    return values.to_numpy(zero_copy_only=False)


def frames_of(patches_PD: Pixels, grid: Sequence[int]) -> Pixels:
    """Patches of one image or video as frames: the inverse of Qwen2-VL's order, written out pixel row by pixel row."""
    t, h, w = grid
    frames_THW3 = np.empty((t * TEMPORAL, h * PATCH, w * PATCH, 3), np.uint8)
    places = itertools.product(range(t), range(h // MERGE), range(w // MERGE), range(MERGE), range(MERGE))
    for values_D, (group, row, column, inner_row, inner_column) in zip(patches_PD, places, strict=True):
        top, left = (row * MERGE + inner_row) * PATCH, (column * MERGE + inner_column) * PATCH
        cell = values_D.reshape(3, TEMPORAL, PATCH, PATCH).transpose(1, 2, 3, 0)
        frames_THW3[group * TEMPORAL : (group + 1) * TEMPORAL, top : top + PATCH, left : left + PATCH] = cell
    return frames_THW3


def read_documents(
    record: pa.RecordBatch, source_names: list[str], *, pixels: Sequence[Pixels] | None = None
) -> Iterator[ReadDocument]:
    """Every document of a whole (not sliced) batch.

    Args:
        pixels: Patches of all pictures of each microbatch; by default those of the batch itself.
    """
    tokens, labels = (record.column(name).to_numpy_ndarray() for name in ("tokens", "labels"))
    for m, documents in enumerate(documents_of(record)):
        starts = record.column("cu_seqlens")[m].as_py()
        pictures = _pictures(record, m, rows_of(record, "pixel_values", m) if pixels is None else pixels[m])
        for i in range(len(documents)):
            start, stop = starts[i], starts[i] + int(documents.num_tokens[i])
            place = (int(getattr(documents, name)[i]) for name in ("shard", "block", "row"))
            yield ReadDocument(
                key=(source_names[documents.source[i]], *place),
                text=tokenizer().decode(tokens[m, start:stop].tolist(), skip_special_tokens=True),
                pictures=pictures.get(i, []),
                labels=labels[m, start:stop],
            )


def pictures_of(
    record: pa.RecordBatch, source_names: list[str], m: int, patches_PD: Pixels
) -> Iterator[tuple[tuple[str, int, int, int], Pixels]]:
    """Place of the row and frames of each picture of a microbatch, made of patches that came another way."""
    documents = documents_of(record)[m]
    for doc, pictures in _pictures(record, m, patches_PD).items():
        shard, block, row = (int(getattr(documents, name)[doc]) for name in ("shard", "block", "row"))
        for frames in pictures:
            yield (source_names[documents.source[doc]], shard, block, row), frames


def _pictures(record: pa.RecordBatch, m: int, patches_PD: Pixels) -> dict[int, list[Pixels]]:
    """Frames of each document's pictures; its placeholders must lie where `image_token_start` says."""
    found: dict[int, list[Pixels]] = {}
    is_whole = "tokens" in record.schema.names and SlicePlace.from_metadata(record.schema.metadata).cp == 1
    tokens = record.column("tokens").to_numpy_ndarray()[m] if is_whole else None
    at = 0
    names = ("image_kind", "grid_thw", "image_doc", "image_token_start")
    for kind, grid, doc, start in zip(*(rows_of(record, name, m) for name in names), strict=True):
        size = math.prod(grid.tolist())
        if doc >= 0:
            frames = frames_of(patches_PD[at : at + size], grid.tolist())
            found.setdefault(int(doc), []).append(frames if kind else frames[:1])
            placeholder = tokenizer().token_to_id("<|video_pad|>" if kind else "<|image_pad|>")
            if tokens is not None:
                assert (tokens[start : start + size // MERGE**2] == placeholder).all()
        at += size
    assert at == len(patches_PD)
    return found


class ExampleFiles:
    """What the files of `media_sources` say a row is, read without any of the product's readers."""

    def __init__(self) -> None:
        self._prose = [
            [row["text"] for row in pq.read_table(path)["doc"].to_pylist()]
            for path in sorted(EXAMPLES.glob("novel/*.parquet"))
        ]
        self._pictures = [list(_members(path)) for path in sorted(EXAMPLES.glob("pictures/*.tar"))]
        lines = (EXAMPLES / "clips/metadata.jsonl").read_text("utf-8").splitlines()
        self._clips = [json.loads(line) for line in lines]
        self._frames: dict[tuple[str, int, int, int], Pixels] = {}

    def text(self, key: tuple[str, int, int, int]) -> str:
        """Text of a row of pictures or clips; of prose by its place among the shard's rows."""
        source, shard, block, row = key
        if source == "clips":
            return str(self._clips[row]["caption"])
        return self._pictures[shard][row][0] if source == "pictures" else self._prose[shard][block * 64 + row]

    def data(self, key: tuple[str, int, int, int]) -> bytes:
        """Bytes of the picture or clip of a row."""
        source, shard, _, row = key
        if source == "pictures":
            return self._pictures[shard][row][1]
        return (EXAMPLES / "clips" / self._clips[row]["file_name"]).read_bytes()

    def frames(self, key: tuple[str, int, int, int]) -> Pixels:
        """The frames that a run must make of it, uint8 (T, H, W, 3)."""
        if key not in self._frames:
            self._frames[key] = (video_frames if key[0] == "clips" else image_frames)(self.data(key))
        return self._frames[key]


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Text and picture of each sample of a tar, in order."""
    with tarfile.open(path) as tar:
        parts: dict[str, dict[str, bytes]] = {}
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            key, _, extension = member.name.partition(".")
            parts.setdefault(key, {})["txt" if extension == "txt" else "picture"] = file.read()
    for sample in parts.values():
        yield sample["txt"].decode(), sample["picture"]


def image_frames(data: bytes) -> Pixels:
    """A picture in the size that Qwen2-VL's rule gives it."""
    size = smart_resize(*image_size(data, LIMITS), PATCH * MERGE, MIN_PIXELS, MAX_PIXELS)
    return decode_image(data, size, LIMITS)[np.newaxis]


def video_frames(data: bytes) -> Pixels:
    """Frames of a video, two a second."""
    info = probe_video(data, LIMITS)
    size = smart_resize(info.height, info.width, PATCH * MERGE, MIN_PIXELS, MAX_PIXELS)
    return decode_video(data, chosen_times(info, 2.0, 2, MAX_FRAMES, TEMPORAL), size, LIMITS)


def pillow_picture(data: bytes, size: tuple[int, int]) -> Pixels:
    """A picture on white, resized by another library. uint8 (H, W, 3)."""
    with Image.open(io.BytesIO(data)) as image:
        rgba = image.convert("RGBA")
    white = Image.new("RGBA", rgba.size, "white")
    plain = Image.alpha_composite(white, rgba).convert("RGB")
    return np.asarray(plain.resize(size[::-1], Image.Resampling.BICUBIC))
