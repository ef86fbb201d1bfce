"""WebDataset tar: samples by key, members by extension, and archives that are cut, linked or wicked."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadmaster_flight.sources.blocks import Block, EndOfShardError, RowFault
from loadmaster_flight.sources.grouping import split_at_first_dot
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.source import SourceSpec, TransformSpec

from .conftest import tar_of

EVERYTHING = TransformSpec(function="mine:call")


@pytest.fixture
def open_tar(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> Callable[..., SourceReader]:
    """A reader of one archive, small blocks; reads the member `txt` unless told otherwise."""

    def make(content: bytes, *, transform: TransformSpec | None = None, block_bytes: int = 4096) -> SourceReader:
        path = tmp_path / "a.tar"
        path.write_bytes(content)
        spec = make_spec(path, transform=transform or TransformSpec(text="txt"), block_bytes=block_bytes)
        return open_reader(spec)

    return make


def read_blocks(reader: SourceReader) -> list[Block]:
    blocks: list[Block] = []
    while True:
        try:
            blocks.append(reader.read_block(0, len(blocks)))
        except EndOfShardError:
            return blocks


def column_of(reader: SourceReader, path: str) -> list[object]:
    return [value for block in read_blocks(reader) for value in block.column(path, np.arange(block.num_rows))]


def pairs(num_samples: int, image_bytes: int = 700) -> list[tuple[str, bytes]]:
    """Samples of an image and a text."""
    members: list[tuple[str, bytes]] = []
    for i in range(num_samples):
        members += [(f"dir.d/{i:04}.jpg", bytes(image_bytes)), (f"dir.d/{i:04}.txt", f"text {i}".encode())]
    return members


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", ("a", "txt")),
        ("dir/a.seg.png", ("dir/a", "seg.png")),
        ("./d.x/a.txt", ("./d.x/a", "txt")),
        ("dir/README", ("dir/README", "")),
        ("dir/.hidden", ("dir/.hidden", "")),
    ],
)
def test_split_name_when_given_a_member_then_cuts_at_the_first_dot_of_its_last_part(
    name: str, expected: tuple[str, str]
) -> None:
    assert split_at_first_dot(name) == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), st.integers(0, 9000), st.sampled_from([4096, 8192, 1 << 20]))
def test_blocks_when_read_in_turn_then_hold_each_sample_once_in_order(
    open_tar: Callable[..., SourceReader], num_samples: int, image_bytes: int, block_bytes: int
) -> None:
    reader = open_tar(tar_of(pairs(num_samples, image_bytes)), block_bytes=block_bytes)
    assert column_of(reader, "txt") == [f"text {i}" for i in range(num_samples)]


def test_block_when_jumped_to_then_is_the_same_as_read_in_turn(open_tar: Callable[..., SourceReader]) -> None:
    content = tar_of(pairs(60))
    in_turn = [block.column("__key__", np.arange(block.num_rows)) for block in read_blocks(open_tar(content))]
    for place in (len(in_turn) - 1, 5, 0):
        block = open_tar(content).read_block(0, place)
        assert block.column("__key__", np.arange(block.num_rows)) == in_turn[place]


def test_block_when_transform_needs_text_then_images_are_not_kept(open_tar: Callable[..., SourceReader]) -> None:
    block = open_tar(tar_of(pairs(2, 100_000)), block_bytes=1 << 20).read_block(0, 0)
    assert block.size_bytes < 100
    assert block.column("jpg", np.arange(2)) == [None, None]


def test_column_when_path_goes_into_json_then_gives_the_value(open_tar: Callable[..., SourceReader]) -> None:
    content = tar_of(
        [
            ("a.json", b'{"caption": "c", "n": {"m": 1}}'),
            ("b.json", b'{"caption": "\\ud800"}'),
            ("c.json", b"[1]"),
            ("d.txt", b"no json"),
        ]
    )
    values = column_of(open_tar(content, transform=TransformSpec(text="json.caption")), "json.caption")
    assert [values[0], values[2], values[3]] == ["c", None, None]
    assert isinstance(values[1], RowFault)
    assert column_of(open_tar(content, transform=EVERYTHING), "json.n.m")[0] == 1


def test_row_when_read_whole_then_has_key_and_members(open_tar: Callable[..., SourceReader]) -> None:
    content = tar_of([("x/a.txt", "grüße".encode()), ("x/a.cls", b"7"), ("x/a.bin", b"\xff"), ("x/a.json", b"[1]")])
    block = open_tar(content, transform=EVERYTHING).read_block(0, 0)
    assert block.row(0) == {"__key__": "x/a", "txt": "grüße", "cls": "7", "bin": b"\xff", "json": [1]}


def test_text_when_not_utf8_then_is_a_fault(open_tar: Callable[..., SourceReader]) -> None:
    content = tar_of([("a.txt", b"\xff"), ("b.txt", b"ok")])
    assert column_of(open_tar(content), "txt") == [RowFault(reason="invalid UTF-8 at byte 0"), "ok"]


def test_member_when_a_pickle_then_is_never_opened(open_tar: Callable[..., SourceReader], tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    content = tar_of([("a.pyd", pickle.dumps(Bomb())), ("a.txt", b"x")])
    reader = open_tar(content, transform=EVERYTHING)
    (fault,) = column_of(reader, "pyd")
    assert isinstance(fault, RowFault)
    assert "pickle" in fault.reason
    assert not isinstance(reader.read_block(0, 0).row(0), RowFault)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_member_when_a_link_or_device_then_is_not_followed(kind: bytes, open_tar: Callable[..., SourceReader]) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        folder = tarfile.TarInfo("folder.d")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        link = tarfile.TarInfo("a.txt")
        link.type, link.linkname = kind, "/etc/hostname"
        archive.addfile(link)
        text = tarfile.TarInfo("b.txt")
        text.size = 2
        archive.addfile(text, io.BytesIO(b"ok"))
    fault, good = column_of(open_tar(target.getvalue()), "txt")
    assert isinstance(fault, RowFault)
    assert "not followed" in fault.reason
    assert good == "ok"


def test_member_when_there_twice_then_the_sample_is_a_fault(open_tar: Callable[..., SourceReader]) -> None:
    content = tar_of([("a.txt", b"1"), ("a.txt", b"2"), ("b.txt", b"3")])
    fault, good = column_of(open_tar(content), "txt")
    assert fault == RowFault(reason="member a.txt is there twice")
    assert good == "3"


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_name_when_longer_than_a_header_then_is_whole(form: int, open_tar: Callable[..., SourceReader]) -> None:
    name = "ordner/" + "ü" * 150 + "/" + "n" * 120
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as archive:
        info = tarfile.TarInfo(f"{name}.txt")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"ok"))
    reader = open_tar(target.getvalue())
    assert (column_of(reader, "__key__"), column_of(reader, "txt")) == ([name], ["ok"])


def test_archive_when_cut_inside_a_member_then_whole_samples_and_one_fault(
    open_tar: Callable[..., SourceReader],
) -> None:
    content = tar_of(pairs(30))
    cut = content.index(b"text 20") - 512 - 1024 + 300  # inside the image of sample 20
    *texts, last = column_of(open_tar(content[:cut]), "txt")
    assert texts == [f"text {i}" for i in range(20)]
    assert isinstance(last, RowFault)
    assert last.reason == "cut archive: it ends inside member dir.d/0020.jpg"


def test_archive_when_it_has_no_end_mark_then_one_fault_says_so(open_tar: Callable[..., SourceReader]) -> None:
    content = tar_of(pairs(3))
    cut = content.index(b"text 2") + 512
    *texts, last = column_of(open_tar(content[:cut]), "txt")
    assert texts == ["text 0", "text 1", "text 2"]
    assert isinstance(last, RowFault)
    assert "without an end mark" in last.reason


def test_archive_when_a_header_is_corrupt_then_one_fault_ends_the_shard(open_tar: Callable[..., SourceReader]) -> None:
    content = bytearray(tar_of(pairs(30)))
    header = content.index(b"dir.d/0010.jpg")
    content[header : header + 4] = b"\xff" * 4
    *texts, last = column_of(open_tar(bytes(content)), "txt")
    assert texts == [f"text {i}" for i in range(10)]
    assert isinstance(last, RowFault)
    assert last.reason.startswith("corrupt archive: no tar header at byte ")
