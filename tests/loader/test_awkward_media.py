"""Files as the web contains them, through the engine: served right, or bad with a reason, or masked in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.transforms import build_transform
from loadmaster_flight.transforms.trial import refuse_fruitless
from loadmaster_flight.wire.errors import SourceError
from loadmaster_flight.wire.schemas import Verdict
from support.media_files import (
    BLUE,
    GREEN,
    RED,
    YELLOW,
    animation,
    bomb_png,
    cmyk_jpeg,
    corners,
    cut_after_frame,
    encoded,
    exif,
    grey_frames,
    photo,
    sine,
    video,
    wav,
    without_moov,
)

from .media_runs import frozen

TOKENS = {"image_token": 390, "video_token": 391}
MeasureFiles = Callable[..., tuple[list[dict[str, Any]], LoaderEngine]]


def run_of(folder: Path, column: str, files: list[bytes | None]) -> RunSpec:
    pq.write_table(pa.table({column: pa.array(files, pa.binary())}), folder / "files.parquet")
    source = {"uri": str(folder / "files.parquet"), "transform": {column: column, "eos": False}, "lanes": 1}
    return RunSpec.model_validate(
        {
            "run": "awkward",
            "vocab_size": 400,
            "sources": {"files": source},
            "batch": {"seq_len": 4096, "microbatches": 4},
            "media": {"vision": TOKENS, "audio": {"audio_token": 392}},
        }
    )


@pytest.fixture
def measure_files(tmp_path: Path) -> Iterator[MeasureFiles]:
    """Rows of one file each, measured, by row; and the engine."""
    engines: list[LoaderEngine] = []

    def measure(column: str, files: list[bytes | None]) -> tuple[list[dict[str, Any]], LoaderEngine]:
        spec = run_of(tmp_path, column, files)
        engines.append(LoaderEngine(spec, [frozen(spec, "files", tmp_path)], cache_dir=None, workers=2))
        rows = engines[-1].measure(0, 0, [[0, 0, 0, 0]], 1000).to_pylist()[:-1]
        return sorted(rows, key=lambda row: row["row"]), engines[-1]

    yield measure
    for engine in engines:
        engine.close()


def pieces_by_row(engine: LoaderEngine, rows: list[dict[str, Any]], plan_of: Any) -> dict[int, dict[str, Any]]:
    plan = plan_of(0, [row for row in rows if row["verdict"] == Verdict.OK])
    return {piece["row"]: piece for piece in engine.materialize([plan]).to_pylist()}


def picture_of(piece: dict[str, Any]) -> np.ndarray:
    """Undo the patches of an image: uint8 [H, W, 3]."""
    _, h, w = piece["media_grid"][0]
    cells = np.frombuffer(piece["pixels"], np.uint8).reshape(h // 2, w // 2, 2, 2, 3, 2, 14, 14)[:, :, :, :, :, 0]
    return cells.transpose(0, 2, 5, 1, 3, 6, 4).reshape(h * 14, w * 14, 3)


def test_pictures_when_turned_in_any_way_come_right_side_up(measure_files: MeasureFiles, plan_of: Any) -> None:
    upright = corners(84, 112)
    turned = {1: 0, 3: 2, 6: 1, 8: 3}
    files = [
        encoded(np.ascontiguousarray(np.rot90(upright, quarter)), "JPEG", quality=95, exif=exif(orientation))
        for orientation, quarter in turned.items()
    ]
    files += [
        cmyk_jpeg(upright),
        animation([upright, upright[::-1]], "GIF"),
        animation([upright, upright[::-1]], "WEBP"),
    ]
    rgba = Image.fromarray(upright).convert("RGBA")
    files += [
        encoded(rgba, "PNG"),
        encoded(Image.fromarray(upright).convert("P"), "PNG"),
        encoded(rgba, "WEBP", lossless=True),
    ]
    rows, engine = measure_files("image", files)
    assert [row["reason"] for row in rows] == [None] * len(files)
    for piece in pieces_by_row(engine, rows, plan_of).values():
        pixels_HWC = picture_of(piece)
        assert pixels_HWC.shape == (84, 112, 3)
        for (y, x), colour in {(20, 20): RED, (20, 90): GREEN, (60, 20): BLUE, (60, 90): YELLOW}.items():
            assert np.abs(pixels_HWC[y, x].astype(int) - colour).max() < 60  # a palette has few colours


def test_pictures_when_broken_are_bad_or_masked_and_the_others_served(
    measure_files: MeasureFiles, plan_of: Any
) -> None:
    good = encoded(photo(200, 300), "JPEG", quality=90)
    files = [good, b"", b"random bytes, no picture", bomb_png(), good[: len(good) // 2], good[:30], None, good]
    rows, engine = measure_files("image", files)
    verdicts = [Verdict(row["verdict"]).name for row in rows]
    assert verdicts == ["OK", "BAD", "BAD", "BAD", "OK", "BAD", "SKIPPED", "OK"]
    assert rows[3]["reason"] == "20000x20000 pixels, over the limit of 100000000"
    assert all(row["reason"] for row in rows if row["verdict"] != Verdict.OK)
    pieces = pieces_by_row(engine, rows, plan_of)
    assert {row: piece["is_masked"] for row, piece in pieces.items()} == {0: False, 4: True, 7: False}
    assert pieces[4]["reason"] == "truncated JPEG"
    assert pieces[4]["num_tokens"] == pieces[0]["num_tokens"]
    assert pieces[0]["pixels"] == pieces[7]["pixels"]


def test_videos_when_broken_are_bad_and_others_show_the_frame_of_their_time(
    measure_files: MeasureFiles, plan_of: Any
) -> None:
    whole = video(grey_frames(90, 56, 84))
    times_ms = [40 * i + (i % 3) * 7 for i in range(60)]
    files = [whole, without_moov(whole), cut_after_frame(whole, 60), video(grey_frames(60, 56, 84), times_ms=times_ms)]
    rows, engine = measure_files("video", files)
    assert [Verdict(row["verdict"]).name for row in rows] == ["OK", "BAD", "BAD", "OK"]
    assert all(rows[row]["reason"] for row in (1, 2))
    pieces = pieces_by_row(engine, rows, plan_of)
    assert not any(piece["is_masked"] for piece in pieces.values())
    assert pieces[0]["media_grid"] == [[3, 4, 6]]


def test_audio_when_rates_differ_has_the_same_length_and_empty_is_bad(
    measure_files: MeasureFiles, plan_of: Any
) -> None:
    files = [wav(sine(rate, rate), rate) for rate in (8000, 16_000, 44_100)]
    rows, engine = measure_files("audio", [*files, wav(np.zeros(0, np.int16), 16_000)])
    assert [Verdict(row["verdict"]).name for row in rows] == ["OK", "OK", "OK", "BAD"]
    assert rows[3]["reason"]
    pieces = pieces_by_row(engine, rows, plan_of)
    assert {piece["media_grid"][0][0] for piece in pieces.values()} == {50}
    assert {len(piece["audio"]) for piece in pieces.values()} == {32_000}


@pytest.mark.parametrize("files", [[b"no picture", b""], [None]])
def test_trial_when_no_picture_can_be_opened_refuses_the_source(tmp_path: Path, files: list[bytes | None]) -> None:
    spec = run_of(tmp_path, "image", files)
    manifest = frozen(spec, "files", tmp_path)
    with pytest.raises(SourceError, match="must hold a sample, but none of"):
        refuse_fruitless(manifest, spec.sources["files"], build_transform(spec, "files"))


def test_trial_when_a_picture_can_be_opened_passes(tmp_path: Path) -> None:
    spec = run_of(tmp_path, "image", [b"no picture", encoded(corners(), "PNG")])
    manifest = frozen(spec, "files", tmp_path)
    refuse_fruitless(manifest, spec.sources["files"], build_transform(spec, "files"))
    with SourceReader(manifest, spec.sources["files"]) as reader:
        assert reader.read_block(0, 0).num_rows == 2
