"""Folders of media files: caption files of every kind, files beside, changes, and what is wrong in a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.sources.folder import ROWS_PER_BLOCK
from loadmaster_flight.sources.inventory import check_unchanged
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.sources.survey import survey_source
from loadmaster_flight.spec.manifest import SourceManifest
from loadmaster_flight.spec.source import SourceSpec, TransformSpec
from loadmaster_flight.wire.errors import SourceError

CAPTIONED = TransformSpec(image="image", text="text")


@pytest.fixture
def folder_spec(make_spec: Callable[..., SourceSpec]) -> Callable[..., SourceSpec]:
    def make(folder: Path, *, transform: TransformSpec = CAPTIONED, **fields: Any) -> SourceSpec:
        return make_spec(folder, format="folder", transform=transform, **fields)

    return make


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def rows_of(reader: SourceReader) -> list[dict[str, object] | RowFault]:
    return [block.row(index) for block in reader.blocks(0) for index in range(block.num_rows)]


def media(name: str) -> dict[str, object]:
    return {"bytes": None, "path": name}


@pytest.mark.parametrize(
    ("captions", "content"),
    [
        ("metadata.jsonl", b'{"file_name": "b.png", "text": "two"}\n\n{"file_name": "a.jpg", "text": "one"}\n'),
        ("metadata.csv", b"\xef\xbb\xbffile_name,text\r\nb.png,two\r\na.jpg,one\r\n"),
        ("captions.tsv", b"file_name\ttext\nb.png\ttwo\na.jpg\tone\n"),
    ],
)
def test_rows_when_a_caption_file_names_them_then_have_its_order_and_columns(
    captions: str,
    content: bytes,
    tmp_path: Path,
    folder_spec: Callable[..., SourceSpec],
    open_reader: Callable[..., SourceReader],
) -> None:
    folder = write(tmp_path / "set", {"a.jpg": b"1", "b.png": b"22", "left/out.jpg": b"3", captions: content})
    assert rows_of(open_reader(folder_spec(folder))) == [
        {"file_name": "b.png", "text": "two", "image": media("b.png")},
        {"file_name": "a.jpg", "text": "one", "image": media("a.jpg")},
    ]


def test_rows_when_a_tsv_has_no_header_then_are_names_and_captions(
    tmp_path: Path, folder_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    folder = write(tmp_path / "set", {"a.mp4": b"1", "captions.tsv": b'a.mp4\ta "quoted" clip\n'})
    (row,) = rows_of(open_reader(folder_spec(folder, transform=TransformSpec(video="video", text="caption"))))
    assert row == {"file_name": "a.mp4", "caption": 'a "quoted" clip', "video": media("a.mp4")}


def test_rows_when_folders_have_caption_files_of_their_own_then_names_start_there(
    tmp_path: Path, folder_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    line = b'{"file_name": "a.wav", "x_file_names": ["b.jpg", "c.jpg"], "y_file_name": "d.mp4"}\n'
    folder = write(tmp_path / "set", {"one/metadata.jsonl": line, "two/metadata.jsonl": line, "one/a.wav": b"1"})
    rows = rows_of(open_reader(folder_spec(folder, transform=TransformSpec(audio="audio"))))
    assert [row["audio"] for row in rows if isinstance(row, dict)] == [media("one/a.wav"), media("two/a.wav")]
    assert isinstance(rows[0], dict)
    assert (rows[0]["x"], rows[0]["y"]) == ([media("one/b.jpg"), media("one/c.jpg")], media("one/d.mp4"))


def test_rows_when_texts_lie_beside_then_are_files_by_stem(
    tmp_path: Path, folder_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    files = {
        "a.b/1.x.JPG": b"i",
        "a.b/1.x.txt": "grüße".encode(),
        "2.jpg": b"i",
        "2.json": b'{"caption": "c"}',
        "3.jpg": b"i",
        "3.txt": b"\xff",
        "4.jpg": b"i",
        "5.txt": b"no media",
        ".hidden.jpg": b"i",
    }
    rows = rows_of(
        open_reader(folder_spec(write(tmp_path / "set", files), transform=TransformSpec(image="image", text="txt")))
    )
    assert rows == [
        {"file_name": "2.jpg", "image": media("2.jpg"), "json": {"caption": "c"}},
        RowFault(reason="3.txt: invalid UTF-8 at byte 0"),
        {"file_name": "4.jpg", "image": media("4.jpg")},
        {"file_name": "a.b/1.x.JPG", "image": media("a.b/1.x.JPG"), "txt": "grüße"},
    ]


@pytest.mark.parametrize(
    ("captions", "content", "reason"),
    [
        ("metadata.jsonl", b"{broken", "metadata.jsonl: row 1: broken JSON line"),
        ("metadata.jsonl", b"[1]", "metadata.jsonl: row 1: must be a JSON object, got list"),
        ("metadata.jsonl", b'{"text": "t"}', "must have a file_name, got the columns text"),
        ("metadata.csv", b"file_name,text\na.jpg,1,2\n", "metadata.csv: row 1: has 3 cells under 2 columns"),
        ("metadata.csv", b"file_name\n\xff\n", "metadata.csv: invalid UTF-8 at byte 10"),
    ],
)
def test_row_when_its_caption_is_no_row_then_is_a_fault(
    captions: str,
    content: bytes,
    reason: str,
    tmp_path: Path,
    folder_spec: Callable[..., SourceSpec],
    open_reader: Callable[..., SourceReader],
) -> None:
    (row,) = rows_of(open_reader(folder_spec(write(tmp_path / "set", {captions: content, "a.jpg": b"1"}))))
    assert isinstance(row, RowFault)
    assert reason in row.reason


def test_blocks_when_there_are_many_rows_then_are_shuffled_units_with_known_counts(
    tmp_path: Path, folder_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    num_rows = 2 * ROWS_PER_BLOCK + 7
    lines = b"".join(orjson.dumps({"file_name": f"{i}.jpg", "text": f"t{i}"}) + b"\n" for i in range(num_rows))
    spec = folder_spec(write(tmp_path / "set", {"metadata.jsonl": lines}))
    manifest = freeze(spec)
    survey = survey_source(manifest, spec)
    assert (survey.num_rows, survey.is_estimate, survey.blocks, manifest.lanes) == (num_rows, False, 3, 3)
    with SourceReader(manifest, spec) as reader:
        texts = [text for b in reader.blocks(0) for text in b.column("text", np.arange(b.num_rows))]
    assert texts == [f"t{i}" for i in range(num_rows)]


@pytest.mark.parametrize("change", ["written", "added", "removed", "gone"])
def test_folder_when_a_file_changes_then_refuses_to_start(
    change: str, tmp_path: Path, folder_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    folder = write(tmp_path / "set", {"a.jpg": b"1", "a.txt": b"x", "b.jpg": b"2"})
    spec = folder_spec(folder, transform=TransformSpec(image="image"))
    manifest = freeze(spec)
    check_unchanged(manifest, spec)
    if change == "written":
        (folder / "a.jpg").write_bytes(b"2")
    elif change == "added":
        (folder / "c.jpg").write_bytes(b"3")
    elif change == "removed":
        (folder / "b.jpg").unlink()
    else:
        folder.rename(tmp_path / "elsewhere")
    with pytest.raises(
        SourceError, match="is missing now" if change == "gone" else "must not change while a run uses it"
    ):
        check_unchanged(manifest, spec)
    if change != "gone":
        with SourceReader(manifest, spec) as reader, pytest.raises(SourceError, match="added, removed or written anew"):
            reader.read_block(0, 0)


@pytest.mark.parametrize(
    ("files", "message"), [({}, "does not exist"), ({"a.txt": b"text alone"}, "must hold a sample")]
)
def test_folder_when_it_has_no_row_then_refuses_to_start(
    files: dict[str, bytes],
    message: str,
    tmp_path: Path,
    folder_spec: Callable[..., SourceSpec],
    freeze: Callable[..., SourceManifest],
) -> None:
    with pytest.raises(SourceError, match=message):
        freeze(folder_spec(write(tmp_path / "set", files)))
