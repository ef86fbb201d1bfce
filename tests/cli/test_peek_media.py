"""What `peek` shows of images, video and audio is what the decoders make of the files."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from loadmaster_flight.transforms.image import decode_image
from loadmaster_flight.transforms.limits import MediaLimits
from loadmaster_flight.transforms.patches import to_patches
from loadmaster_flight.transforms.video import chosen_times, decode_video, probe_video
from loadmaster_server.cli.peek import main

EXAMPLES = Path(__file__).parents[2] / "examples/data"
LIMITS = MediaLimits(max_bytes=1 << 26, max_pixels=100_000_000)
VISION = {"max_pixels": 112 * 112, "max_frames": 4}

Peek = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def peek(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Peek:
    """Peek at one source of a run over media; its samples as JSON."""

    def run(
        source: dict[str, Any],
        *argv: str,
        media: dict[str, Any] | None = None,
        batch: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        spec = {
            "run": "test",
            "tokenizer": str(EXAMPLES / "tokenizer.json"),
            "vocab_size": 8192,
            "media": media or {"vision": VISION, "audio": {"audio_token": 8000, "rate": 16_000, "hop": 160}},
            "sources": {"it": source},
            "mixture": {"weights": {"it": 1}},
            "batch": batch or {"seq_len": 1024, "microbatches": 1},
        }
        (tmp_path / "RUN.yaml").write_text(yaml.safe_dump(spec))
        assert main([str(tmp_path / "RUN.yaml"), "--json", *argv]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def pictures(**transform: Any) -> dict[str, Any]:
    return {
        "uri": str(EXAMPLES / "pictures/*.tar"),
        "transform": {"text": "txt", "image": "jpg;png", "eos": False, **transform},
    }


def clips() -> dict[str, Any]:
    return {
        "uri": str(EXAMPLES / "clips"),
        "format": "folder",
        "transform": {"text": "caption", "video": "video", "eos": False},
    }


def picture_of(sample: dict[str, Any]) -> bytes:
    """The file that a sample of the example pictures is from."""
    with tarfile.open(sample["uri"]) as tar:
        members = [member for member in tar.getmembers() if not member.name.endswith(".txt")]
        file = tar.extractfile(members[sample["row"]])
        assert file is not None
        return file.read()


def field(sample: dict[str, Any], name: str) -> dict[str, Any]:
    return next(f for f in sample["fields"] if f["name"] == name)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def shown(path: str) -> np.ndarray:
    return np.asarray(Image.open(path))


def test_peek_when_a_sample_has_an_image_then_its_png_is_the_resized_file(peek: Peek, tmp_path: Path) -> None:
    samples = peek(pictures(), "-n", "8", "--out", str(tmp_path / "out"))
    assert len(samples) == 8
    for sample in samples:
        assert sample["verdict"] == "ok"
        text, png = sample["files"]
        picture_HW3 = shown(png)
        wanted_HW3 = decode_image(picture_of(sample), picture_HW3.shape[:2], LIMITS)
        assert np.array_equal(picture_HW3, wanted_HW3)
        assert sample["text"] in Path(text).read_text("utf-8")


def test_peek_when_a_sample_has_an_image_then_fields_are_those_of_a_batch(peek: Peek, tmp_path: Path) -> None:
    sample = peek(pictures(), "-n", "1", "--out", str(tmp_path / "out"))[0]
    picture_HW3 = shown(sample["files"][1])
    patches_PD = to_patches(picture_HW3[np.newaxis], patch=14, merge=2, temporal=2)
    assert field(sample, "pixel_values") == {
        "name": "pixel_values",
        "dtype": "uint8",
        "shape": list(patches_PD.shape),
        "digest": digest(patches_PD),
    }
    grid = np.array([[1, picture_HW3.shape[0] // 14, picture_HW3.shape[1] // 14]], np.int32)
    assert field(sample, "grid_thw")["digest"] == digest(grid)
    assert field(sample, "image_token_start")["digest"] == digest(np.zeros(1, np.int32))
    assert sample["num_tokens"] == field(sample, "tokens")["shape"][0] > len(patches_PD) // 4
    assert set(sample["cost"]) == {"backbone", "encoder"}


def test_peek_when_a_sample_has_a_video_then_its_png_holds_the_frames_of_the_run(peek: Peek, tmp_path: Path) -> None:
    samples = peek(clips(), "-n", "7", "--out", str(tmp_path / "out"))
    assert len(samples) == 7
    lines = (EXAMPLES / "clips/metadata.jsonl").read_text("utf-8").splitlines()
    for sample in samples:
        data = (EXAMPLES / "clips" / json.loads(lines[sample["row"]])["file_name"]).read_bytes()
        times_T = chosen_times(probe_video(data, LIMITS), 2.0, 2, 4, 2)
        sheet = shown(sample["files"][1])
        height, width = sheet.shape[0], sheet.shape[1] // len(times_T)
        frames_THW3 = decode_video(data, times_T, (height, width), LIMITS)
        assert np.array_equal(sheet, np.concatenate(list(frames_THW3), axis=1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_peek_when_pixels_are_normalised_then_the_picture_is_the_same(peek: Peek, tmp_path: Path, dtype: str) -> None:
    (plain,) = peek(pictures(), "-n", "1", "--out", str(tmp_path / "plain"))
    (other,) = peek(pictures(), "-n", "1", "--out", str(tmp_path / dtype), media={"vision": {**VISION, "dtype": dtype}})
    one, two = (shown(sample["files"][1]).astype(int) for sample in (plain, other))
    assert abs(one - two).max() <= 1
    assert field(other, "pixel_values")["shape"] == field(plain, "pixel_values")["shape"]


def test_peek_when_the_layout_is_frames_then_the_picture_has_their_size(peek: Peek, tmp_path: Path) -> None:
    vision = {"layout": "frames", "size": [48, 64], "tokens_per_frame": 3}
    (sample,) = peek(pictures(), "-n", "1", "--out", str(tmp_path / "out"), media={"vision": vision})
    picture_HW3 = shown(sample["files"][1])
    assert picture_HW3.shape == (48, 64, 3)
    assert field(sample, "pixel_values")["digest"] == digest(np.ascontiguousarray(picture_HW3.transpose(2, 0, 1)))


def test_peek_when_a_sample_has_audio_then_its_wav_is_the_files_sound(peek: Peek, tmp_path: Path) -> None:
    sound = np.random.default_rng(0).integers(-3000, 3000, 1600).astype("<i2")
    (tmp_path / "sounds").mkdir()
    with wave.open(str(tmp_path / "sounds/a.wav"), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(sound.tobytes())
    (tmp_path / "sounds/a.txt").write_text("noise")
    source = {"uri": str(tmp_path / "sounds"), "format": "folder", "transform": {"text": "txt", "audio": "audio"}}
    (sample,) = peek(source | {"transform": source["transform"] | {"eos": False}}, "--out", str(tmp_path / "out"))
    assert field(sample, "audio_values")["digest"] == digest(sound)
    with wave.open(sample["files"][1], "rb") as file:
        assert file.getframerate() == 16_000
        assert file.readframes(1600) == sound.tobytes()
    assert sample["text"] == "[audio 1: 10 frames, 10 tokens]noise"


def jpeg_tar(path: Path, files: dict[str, bytes]) -> dict[str, Any]:
    """A source of JPEG files in a tar, each with its name as text."""
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            for extension, content in (("jpg", data), ("txt", name.encode())):
                member = tarfile.TarInfo(f"{name}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return {"uri": str(path), "transform": {"text": "txt", "image": "jpg", "eos": False}}


def jpeg() -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(1).integers(0, 255, (96, 128, 3), np.uint8)
    Image.fromarray(noise).save(out, "JPEG")
    return out.getvalue()


def test_peek_when_media_are_broken_then_it_says_bad_or_masked_and_why(peek: Peek, tmp_path: Path) -> None:
    files = {"whole": jpeg(), "cut": jpeg()[:4000], "noise": bytes(range(256)) * 8, "empty": b""}
    samples = peek(jpeg_tar(tmp_path / "a.tar", files), "-n", "4", "--out", str(tmp_path / "out"))
    by_row = {list(files)[sample["row"]]: sample for sample in samples}
    assert {name: sample["verdict"] for name, sample in by_row.items()} == {
        "whole": "ok",
        "cut": "masked",
        "noise": "bad",
        "empty": "bad",
    }
    assert all(by_row[name]["reason"] for name in ("cut", "noise", "empty"))
    assert {name: len(sample["files"]) for name, sample in by_row.items()} == {
        "whole": 2,
        "cut": 1,
        "noise": 1,
        "empty": 1,
    }


def test_peek_when_files_are_named_then_media_columns_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    for target, kind in (("pictures/*.tar", "image"), ("clips", "video")):
        argv = [str(EXAMPLES / target), "-n", "3", "--json", *(["--format", "folder"] if kind == "video" else [])]
        assert main(argv) == 0
        samples = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(samples) == 3
        assert all(sample["text"].startswith(f"[{kind} 1: ") and len(sample["text"]) > 40 for sample in samples)


def test_peek_when_there_is_no_tokenizer_then_media_alone_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, beside = tmp_path / "pictures", tmp_path / "other"
    for place in (folder, beside):
        place.mkdir()
    (beside / "tokenizer.json").write_text("{}")
    (folder / "a.jpg").write_bytes(jpeg())
    monkeypatch.chdir(folder)
    assert main([str(folder), "--format", "folder", "--json", "--out", "out"]) == 0
    (sample,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sample["files"] == ["out/files-0-0-0.txt", "out/files-0-0-0-image-1.png"]
    assert shown(sample["files"][1]).shape == (84, 140, 3)


def test_peek_when_out_is_a_file_then_it_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    assert main([str(EXAMPLES / "clips"), "--format", "folder", "--out", str(tmp_path / "out")]) == 2
    assert "--out must be a folder that can be written" in capsys.readouterr().err


def test_peek_when_read_by_a_person_then_fields_and_sizes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(EXAMPLES / "pictures/*.tar"), "-n", "1"]) == 0
    out = capsys.readouterr().out
    assert "pixel_values uint8 [" in out
    assert " tokens  cost backbone " in out
    assert "[image 1: 1 x " in out


def test_peek_when_a_sample_is_longer_than_a_microbatch_then_skipped_as_the_planner_does(peek: Peek) -> None:
    samples = peek(pictures(), "-n", "12", batch={"seq_len": 32, "microbatches": 1})
    found = {sample["verdict"] for sample in samples}
    assert found == {"ok", "skipped"}
    for sample in samples:
        assert (sample["num_tokens"] > 32) == (sample["verdict"] == "skipped")
        if sample["verdict"] == "skipped":
            assert sample["reason"] == "longer than a microbatch, and media cannot be cut"
            assert sample["fields"] == []


def test_peek_when_long_text_is_cut_then_it_is_ok_and_skipped_where_the_spec_says_so(peek: Peek) -> None:
    source = {"uri": str(EXAMPLES / "novel/*.parquet"), "transform": {"text": "doc.text", "eos": False}}
    batch = {"seq_len": 64, "microbatches": 1}
    assert {sample["verdict"] for sample in peek(source, batch=batch)} == {"ok"}
    (sample,) = peek(source, "-n", "1", batch=batch | {"over_long": "skip"})
    assert (sample["verdict"], sample["reason"]) == ("skipped", "longer than 64 tokens, and over_long is skip")
