"""Members of an archive that are no neighbours, and rules that say which sample a member belongs to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loadmaster_flight.sources.blocks import Block, RowFault
from loadmaster_flight.sources.grouping import grouping_of
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.sources.seen import SeenKeys
from loadmaster_flight.spec.source import SourceSpec, TransformSpec
from loadmaster_flight.wire.errors import SourceError

from .conftest import tar_of

PAIR = TransformSpec(text="txt", image="jpg")
BY_FOLDER = r"(?P<field>[^/]+)/(?P<key>.+)[.][a-z]+"


@pytest.fixture
def open_tar(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> Callable[..., SourceReader]:
    def make(content: bytes, *, transform: TransformSpec = PAIR, **fields: Any) -> SourceReader:
        path = tmp_path / "a.tar"
        path.write_bytes(content)
        return open_reader(make_spec(path, transform=transform, **fields))

    return make


def blocks_of(reader: SourceReader) -> list[Block]:
    return list(reader.blocks(0))


def rows_of(reader: SourceReader) -> list[tuple[object, object]]:
    columns = [[b.column(path, np.arange(b.num_rows)) for b in blocks_of(reader)] for path in ("jpg", "txt")]
    images, texts = ([value for values in column for value in values] for column in columns)
    return list(zip(images, texts, strict=True))


def interleaved(num_samples: int, size_bytes: int, depth: int) -> list[tuple[str, bytes]]:
    """`depth` images, then their texts, and so on."""
    members: list[tuple[str, bytes]] = []
    for start in range(0, num_samples, depth):
        chunk = range(start, min(start + depth, num_samples))
        members += [(f"{i:03}.jpg", bytes([i]) * size_bytes) for i in chunk]
        members += [(f"{i:03}.txt", f"text {i}".encode()) for i in chunk]
    return members


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("block_bytes", [4096, 9000, 1 << 20])
def test_members_when_interleaved_then_are_joined_across_the_ends_of_blocks(
    depth: int, block_bytes: int, open_tar: Callable[..., SourceReader]
) -> None:
    reader = open_tar(tar_of(interleaved(40, 700, depth)), block_bytes=block_bytes)
    assert rows_of(reader) == [(bytes([i]) * 700, f"text {i}") for i in range(40)]


def test_block_when_read_out_of_order_then_holds_the_same_rows(open_tar: Callable[..., SourceReader]) -> None:
    content = tar_of(interleaved(40, 700, 3))
    in_order = [
        block.column("txt", np.arange(block.num_rows)) for block in blocks_of(open_tar(content, block_bytes=4096))
    ]
    reader = open_tar(content, block_bytes=4096)
    for index in reversed(range(len(in_order))):
        block = reader.read_block(0, index)
        assert block.column("txt", np.arange(block.num_rows)) == in_order[index]


def test_members_when_blocks_apart_then_the_later_ones_are_a_fault_that_says_so(
    open_tar: Callable[..., SourceReader],
) -> None:
    members = [(f"{i}.jpg", bytes(5000)) for i in range(30)] + [(f"{i}.txt", b"text") for i in range(30)]
    rows = rows_of(open_tar(tar_of(members), block_bytes=4096))
    assert rows[:2] == [(bytes(5000), None)] * 2
    reason = "member of sample 1 lies blocks behind the others (block 1): raise block_bytes or pack anew"
    assert (RowFault(reason=reason),) * 2 in rows[30:]
    assert all(isinstance(text, RowFault) for _, text in rows[30:])


def test_members_when_blocks_apart_and_block_bytes_is_raised_then_are_joined(
    open_tar: Callable[..., SourceReader],
) -> None:
    members = [(f"{i}.jpg", bytes(5000)) for i in range(4)] + [(f"{i}.txt", b"text") for i in range(4)]
    assert rows_of(open_tar(tar_of(members), block_bytes=1 << 20)) == [(bytes(5000), "text")] * 4


def test_sample_when_packed_twice_then_is_a_fault_wherever_the_second_one_lies(
    open_tar: Callable[..., SourceReader],
) -> None:
    members = [("a.jpg", b"1"), ("a.txt", b"x"), ("b.jpg", b"2"), ("b.txt", b"y"), ("a.jpg", b"3")]
    rows = rows_of(open_tar(tar_of(members)))
    assert rows == [(RowFault(reason="member a.jpg is there twice"),) * 2, (b"2", "y")]


def test_archive_when_cut_between_interleaved_members_then_whole_samples_and_one_fault(
    open_tar: Callable[..., SourceReader],
) -> None:
    content = tar_of(interleaved(4, 700, 2))
    cut = content.index(b"text 3") + 3
    rows = rows_of(open_tar(content[:cut]))
    assert [text for _, text in rows[:3]] == ["text 0", "text 1", "text 2"]
    assert rows[3][1] == RowFault(reason="cut archive: it ends inside member 003.txt")
    assert len(rows) == 4


def test_member_when_it_has_no_bytes_then_its_value_has_none(open_tar: Callable[..., SourceReader]) -> None:
    assert rows_of(open_tar(tar_of([("a.jpg", b""), ("a.txt", b"")]))) == [(b"", "")]


def test_archive_when_it_has_no_bytes_then_refuses_to_start(open_tar: Callable[..., SourceReader]) -> None:
    with pytest.raises(SourceError, match="0 bytes are no webdataset file"):
        open_tar(b"")


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        ("first_dot", "d.x/a.b.jpg", ("d.x/a", "b.jpg")),
        ("last_dot", "d.x/a.b.jpg", ("d.x/a.b", "jpg")),
        ("last_dot", "d.x/.hidden", ("d.x/.hidden", "")),
        ("last_dot", "d.x/README", ("d.x/README", "")),
        (BY_FOLDER, "images/x.1/7.jpg", ("x.1/7", "images")),
        (BY_FOLDER, "README", ("README", "")),
        (r"(?P<key>.+)_(?P<field>img|cap)\..*", "0001_img.v2.jpg", ("0001", "img")),
    ],
)
def test_grouping_when_given_a_name_then_splits_it_by_its_rule(rule: str, name: str, expected: tuple[str, str]) -> None:
    assert grouping_of(rule)(name) == expected


def test_group_when_a_pattern_then_members_of_several_folders_make_samples(
    open_tar: Callable[..., SourceReader],
) -> None:
    members = [(f"images/{i}.jpg", bytes([i])) for i in range(3)] + [(f"text/{i}.txt", b"t%d" % i) for i in range(3)]
    transform = TransformSpec(text="text", image="images")
    reader = open_tar(tar_of(members), transform=transform, group=BY_FOLDER)
    block = reader.read_block(0, 0)
    assert block.column("images", np.arange(3)) == [b"\0", b"\1", b"\2"]
    assert block.column("text", np.arange(3)) == ["t0", "t1", "t2"]


def test_column_when_it_names_alternatives_then_takes_what_a_sample_has(open_tar: Callable[..., SourceReader]) -> None:
    content = tar_of([("a.jpg", b"1"), ("b.png", b"2"), ("c.txt", b"x")])
    block = open_tar(content, transform=TransformSpec(image="jpg;png")).read_block(0, 0)
    assert block.column("jpg;png", np.arange(3)) == [b"1", b"2", None]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"group": "(?P<key>.+"}, "group must be first_dot, last_dot or a regular expression"),
        ({"group": "(?P<key>.+)[.].*"}, "with the groups key and field, such as"),
        ({"group": "last_dot", "format": "parquet"}, "group is for tar files, got format parquet"),
        ({"split": "val", "format": "mds"}, "split is for format energon, got format mds"),
    ],
)
def test_spec_when_a_rule_does_not_fit_then_is_refused(
    fields: dict[str, str], message: str, make_spec: Callable[..., SourceSpec]
) -> None:
    with pytest.raises(ValidationError, match=message.replace("(", r"\(")):
        make_spec("a.tar", **fields)


@given(st.lists(st.lists(st.sampled_from([f"k{i}" for i in range(30)]), max_size=12), max_size=8))
def test_seen_keys_when_added_block_by_block_then_tell_the_first(blocks: list[list[str]]) -> None:
    seen, expected = SeenKeys(), dict[str, int]()
    for number, keys in enumerate(blocks):
        for key in keys:
            expected.setdefault(key, number)
        assert seen.first_blocks(keys, number) == [expected[key] for key in keys]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.integers(1, 60), st.integers(0, 3000), st.integers(1, 6), st.sampled_from([4096, 8192, 1 << 20]))
def test_blocks_when_any_archive_is_read_then_no_member_is_lost_or_served_twice(
    open_tar: Callable[..., SourceReader], num_samples: int, size_bytes: int, depth: int, block_bytes: int
) -> None:
    rows = rows_of(open_tar(tar_of(interleaved(num_samples, size_bytes, depth)), block_bytes=block_bytes))
    texts = [text for _, text in rows if isinstance(text, str)]
    faults = [text for _, text in rows if isinstance(text, RowFault)]
    assert len(set(texts)) == len(texts)
    assert len(texts) + len(faults) == num_samples
    assert len([image for image, _ in rows if isinstance(image, bytes)]) == num_samples
