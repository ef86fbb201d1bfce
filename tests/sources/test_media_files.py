"""Bytes of media: embedded ones, files below the root and nothing else, and stores that fail."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.sources.attempts import Patience
from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.sources.media_files import MediaFiles
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.manifest import SourceManifest
from loadmaster_flight.spec.source import SourceSpec, TransformSpec
from loadmaster_flight.wire.errors import UnavailableError

from .conftest import QUICK, write_parquet

LIMIT = 1000
OpenMedia = Callable[..., MediaFiles]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of a Parquet shard and two images, one of them in a folder of its own."""
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    write_parquet(folder / "a.parquet", {"image": ["images/a.jpg"]})
    (folder / "images" / "a.jpg").write_bytes(b"jpeg a")
    (folder / "b.jpg").write_bytes(b"jpeg b")
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def open_media(
    data: Path, make_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> Callable[..., MediaFiles]:
    def make(*, patience: Patience = QUICK, cache_bytes: int = 1 << 20, **fields: Any) -> MediaFiles:
        spec = make_spec(data / "a.parquet", transform=TransformSpec(image="image"), **fields)
        return MediaFiles(freeze(spec), spec, patience=patience, cache_bytes=cache_bytes)

    return make


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"inline", b"inline"),
        (b"", b""),
        ({"bytes": b"inline", "path": "gone.jpg"}, b"inline"),
        ({"bytes": None, "path": "images/a.jpg"}, b"jpeg a"),
        ("images/a.jpg", b"jpeg a"),
        ("./images//a.jpg", b"jpeg a"),
        ("b.jpg", b"jpeg b"),
    ],
)
def test_read_when_a_value_stands_for_bytes_then_gives_them(
    value: object, expected: bytes, open_media: OpenMedia
) -> None:
    assert open_media().read(0, value, LIMIT) == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "media must be bytes, {bytes, path} or a path, got null"),
        (7, "got int"),
        ({"bytes": None, "path": None}, "got a struct with neither"),
        ("", "a path must name a file, got ''"),
        ("a\0b", "a path must name a file"),
        ("n" * 300, "a path must name a file"),
        ("\udc80.jpg", "a path must name a file"),
        ("../secret", "a path must not leave its folder: ../secret"),
        ("images/../../secret", "a path must not leave its folder"),
        ("/etc/hostname", "(media_root widens that): /etc/hostname"),
        ("file:///etc/hostname", "(media_root widens that)"),
        ("s3://bucket/a.jpg", "(media_root widens that): s3://bucket/a.jpg"),
        ("https://example.org/a.jpg", "(media_root widens that)"),
        ("gone.jpg", "file not found: gone.jpg"),
        ("b.jpg/c.jpg", "file not found: b.jpg/c.jpg"),
        ("images", "no file: images"),
        (RowFault(reason="broken JSON line"), "broken JSON line"),
        (bytes(LIMIT + 1), "1001 bytes, media.max_bytes allows 1000"),
    ],
)
def test_read_when_a_value_stands_for_nothing_then_says_why_twice_alike(
    value: object, reason: str, open_media: OpenMedia
) -> None:
    media = open_media()
    first, second = media.read(0, value, LIMIT), media.read(0, value, LIMIT)
    assert isinstance(first, RowFault)
    assert reason in first.reason
    assert second == first


def test_read_when_a_path_is_absolute_and_below_the_root_then_is_read(data: Path, open_media: OpenMedia) -> None:
    assert open_media().read(0, str(data / "b.jpg"), LIMIT) == b"jpeg b"
    assert open_media().read(0, f"file://{data}/b.jpg", LIMIT) == b"jpeg b"


def test_read_when_media_root_is_given_then_paths_start_and_end_there(data: Path, open_media: OpenMedia) -> None:
    media = open_media(media_root=str(data / "images"))
    assert media.read(0, "a.jpg", LIMIT) == b"jpeg a"
    assert isinstance(media.read(0, str(data / "b.jpg"), LIMIT), RowFault)


def test_read_when_a_link_leads_out_then_is_refused(data: Path, open_media: OpenMedia) -> None:
    (data / "out.jpg").symlink_to(data.parent / "secret")
    (data / "loop.jpg").symlink_to(data / "loop.jpg")
    (data / "in.jpg").symlink_to(data / "b.jpg")
    media = open_media()
    for name in ("out.jpg", "loop.jpg"):
        assert media.read(0, name, LIMIT) == RowFault(reason=f"a link leads out of its folder, or nowhere: {name}")
    assert media.read(0, "in.jpg", LIMIT) == b"jpeg b"


def test_read_when_a_pipe_then_does_not_wait_for_it(data: Path, open_media: OpenMedia) -> None:
    os.mkfifo(data / "pipe.jpg")
    assert open_media().read(0, "pipe.jpg", LIMIT) == RowFault(reason="no file: pipe.jpg")


def test_read_when_a_file_is_too_large_then_is_not_read(data: Path, open_media: OpenMedia) -> None:
    (data / "large.jpg").write_bytes(bytes(LIMIT + 1))
    media = open_media()
    assert media.read(0, "large.jpg", LIMIT) == RowFault(reason="1001 bytes, media.max_bytes allows 1000")
    assert media.read(0, "large.jpg", LIMIT + 1) == bytes(LIMIT + 1)
    assert isinstance(media.read(0, "large.jpg", LIMIT), RowFault)


def test_read_when_the_whole_folder_is_gone_then_is_no_verdict(data: Path, open_media: OpenMedia) -> None:
    media = open_media()
    data.rename(data.parent / "unmounted")
    with pytest.raises(
        UnavailableError, match=r"source src, shard 0: media file .*b\.jpg cannot be read after 3 tries"
    ):
        media.read(0, "b.jpg", LIMIT)


def test_read_when_a_file_turns_up_at_the_second_look_then_is_read(data: Path, open_media: OpenMedia) -> None:
    media = open_media(patience=Patience(tries=1, first_wait_s=60))
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(media.read(0, "late.jpg", LIMIT)))
    thread.start()
    (data / "part").write_bytes(b"late")
    (data / "part").replace(data / "late.jpg")
    media.close()  # ends the wait between the looks
    thread.join(timeout=30)
    assert results == [b"late"]


def test_read_when_kept_then_the_file_is_not_read_again_until_others_push_it_out(
    data: Path, open_media: OpenMedia
) -> None:
    media = open_media(cache_bytes=10)
    assert media.read(0, "b.jpg", LIMIT) == b"jpeg b"
    (data / "b.jpg").write_bytes(b"anew")
    assert media.read(0, "b.jpg", LIMIT) == b"jpeg b"
    assert media.read(0, "images/a.jpg", LIMIT) == b"jpeg a"
    assert media.read(0, "b.jpg", LIMIT) == b"anew"


def test_read_when_many_threads_want_many_files_then_each_gets_its_own(data: Path, open_media: OpenMedia) -> None:
    contents = {f"{i}.jpg": os.urandom(100 + i) for i in range(20)}
    for name, content in contents.items():
        (data / name).write_bytes(content)
    media = open_media(cache_bytes=500)
    wrong: list[str] = []

    def read_all(start: int) -> None:
        names = sorted(contents, key=lambda name: (hash((name, start)), name))
        wrong.extend(name for name in names * 5 if media.read(0, name, LIMIT) != contents[name])

    threads = [threading.Thread(target=read_all, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert wrong == []


def test_media_when_parquet_embeds_or_names_them_then_columns_and_text_are_read_together(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    (tmp_path / "x.jpg").write_bytes(b"on disk")
    images = [{"bytes": b"embedded", "path": None}, {"bytes": None, "path": "x.jpg"}]
    clips = [[b"1", b"2"], []]
    columns = {"image": images, "clips": clips, "text": ["one", "two"], "other": [1, 2]}
    path = write_parquet(tmp_path / "a.parquet", columns)
    spec = make_spec(path, transform=TransformSpec(text="text", image="image", audio=["clips"]))
    manifest = freeze(spec)
    with SourceReader(manifest, spec) as reader:
        block = reader.read_block(0, 0)
    media = MediaFiles(manifest, spec, patience=QUICK)
    rows = np.arange(2)
    assert [media.read(0, value, LIMIT) for value in block.column("image", rows)] == [b"embedded", b"on disk"]
    assert block.column("clips", rows) == clips
    assert block.column("text", rows) == ["one", "two"]
    assert block.column("other", rows) == [None, None]
