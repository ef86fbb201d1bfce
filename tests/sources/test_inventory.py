"""Freezing a source: lanes, units, and every fault that can be known before a run starts."""

from __future__ import annotations

import gzip
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from loadmaster_flight.sources.inventory import check_unchanged
from loadmaster_flight.sources.survey import survey_source
from loadmaster_flight.spec.manifest import SourceManifest, UnitKind
from loadmaster_flight.spec.source import SourceFormat, SourceSpec, TransformSpec
from loadmaster_flight.wire.errors import SourceError

from .conftest import tar_of, write_jsonl, write_parquet

Freeze = Callable[..., SourceManifest]
MakeSpec = Callable[..., SourceSpec]


def rows(num_rows: int) -> list[dict[str, str]]:
    return [{"text": f"row {i}", "pad": "x" * 100} for i in range(num_rows)]


def test_freeze_when_shards_are_few_then_units_are_row_groups(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    write_parquet(tmp_path / "a.parquet", {"text": ["x"] * 30}, row_group_size=10)
    manifest = freeze(make_spec("*.parquet"), shuffle_bytes=1 << 30)
    (shard,) = manifest.shards
    assert (manifest.format, manifest.unit_kind, manifest.lanes) == (SourceFormat.PARQUET, UnitKind.BLOCK, 3)
    assert shard.num_rows == 30
    assert shard.block_sizes is not None
    assert len(shard.block_sizes) == 3


def test_freeze_when_jsonl_is_plain_then_units_are_byte_ranges(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    size = write_jsonl(tmp_path / "a.jsonl", rows(200)).stat().st_size
    manifest = freeze(make_spec("a.jsonl", block_bytes=4096), shuffle_bytes=16384)
    sizes = manifest.shards[0].block_sizes or ()
    assert manifest.lanes == 4
    assert sum(sizes) == size
    assert set(sizes[:-1]) == {4096}


def test_freeze_when_shards_are_many_then_units_are_shards_and_footers_stay_unread(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    for index in range(8):
        write_parquet(tmp_path / f"{index}.parquet", {"text": ["x"]})
    (tmp_path / "5.parquet").write_bytes(b"not looked at")
    manifest = freeze(make_spec("*.parquet", lanes=2))
    assert (manifest.unit_kind, manifest.lanes) == (UnitKind.SHARD, 2)
    assert all(shard.block_sizes is None for shard in manifest.shards)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.tar", "a.arrows"])
def test_freeze_when_shards_cannot_be_sought_then_units_are_shards(
    name: str, tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(b'{"text": "a"}\n'))
    elif name.endswith(".tar"):
        (tmp_path / name).write_bytes(tar_of([("a.txt", b"x")]))
    else:
        batch = pa.record_batch({"text": ["a"]})
        with pa.OSFile(str(tmp_path / name), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    manifest = freeze(make_spec(name), shuffle_bytes=1 << 30)
    assert (manifest.unit_kind, manifest.lanes) == (UnitKind.SHARD, 1)
    assert not manifest.shards[0].is_seekable


def test_freeze_when_repeated_then_gives_the_same_manifest(tmp_path: Path, freeze: Freeze, make_spec: MakeSpec) -> None:
    for index in range(3):
        write_jsonl(tmp_path / f"{index}.jsonl", rows(10 + index))
    spec = make_spec("*.jsonl")
    assert freeze(spec) == freeze(spec)
    assert SourceManifest.model_validate_json(freeze(spec).model_dump_json()) == freeze(spec)


def test_freeze_when_footers_are_read_then_progress_counts_files(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    for index in range(3):
        write_parquet(tmp_path / f"{index}.parquet", {"text": ["x"]})
    seen: list[tuple[int, int]] = []
    freeze(make_spec("*.parquet"), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def _nothing(folder: Path) -> str:
    return "a.jsonl"


def _empty_parquet(folder: Path) -> str:
    write_parquet(folder / "a.parquet", {"text": ["x"]})
    (folder / "b.parquet").write_bytes(b"")
    return "*.parquet"


def _cut_parquet(folder: Path) -> str:
    path = write_parquet(folder / "a.parquet", {"text": ["x"] * 100})
    path.write_bytes(path.read_bytes()[:-20])
    return "a.parquet"


def _cut_arrow(folder: Path) -> str:
    (folder / "a.arrow").write_bytes(b"ARROW1\0\0 and nothing else")
    return "a.arrow"


def _no_rows(folder: Path) -> str:
    write_parquet(folder / "a.parquet", {"text": pa.array([], pa.string())})
    return "a.parquet"


def _blank(folder: Path) -> str:
    (folder / "a.jsonl").write_bytes(b"\n  \n\n")
    return "a.jsonl"


def _empty_jsonl(folder: Path) -> str:
    (folder / "a.jsonl").write_bytes(b"")
    return "a.jsonl"


def _empty_tar(folder: Path) -> str:
    (folder / "a.tar").write_bytes(tar_of([]))
    return "a.tar"


def _unknown(folder: Path) -> str:
    (folder / "a.csv").write_bytes(b"text\nx\n")
    return "a.csv"


def _compressed_tar(folder: Path) -> str:
    (folder / "a.tar.gz").write_bytes(gzip.compress(tar_of([("a.txt", b"x")])))
    return "a.tar.gz"


def _mixed(folder: Path) -> str:
    write_parquet(folder / "a.parquet", {"text": ["x"]})
    write_jsonl(folder / "b.jsonl", rows(1))
    return "*"


def _json_array(folder: Path) -> str:
    (folder / "a.json").write_bytes(b' [\n{"text": "a"}]')
    return "a.json"


def _other_column(folder: Path) -> str:
    write_parquet(folder / "a.parquet", {"texts": ["x"], "id": [1]})
    return "a.parquet"


@pytest.mark.parametrize(
    ("lay_out", "rule"),
    [
        (_nothing, "names a file that does not exist"),
        (_empty_parquet, "must not be empty: 0 bytes are no parquet file"),
        (_cut_parquet, "must end with a parquet footer, it is cut"),
        (_cut_arrow, "must end with a arrow footer, it is cut"),
        (_no_rows, "must hold a sample"),
        (_blank, "must hold a sample"),
        (_empty_jsonl, "must hold a sample, but every file of the source is empty"),
        (_empty_tar, "must hold a sample"),
        (_unknown, "has an extension that tells no format"),
        (_compressed_tar, "has an extension that tells no format"),
        (_mixed, "a source has one format"),
        (_json_array, "got a JSON array"),
        (_other_column, "has no column 'text', nor has any other shard; did you mean texts?"),
    ],
)
def test_freeze_when_the_source_is_bad_then_the_error_names_source_field_and_rule(
    lay_out: Callable[[Path], str], rule: str, tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    uri = lay_out(tmp_path)
    with pytest.raises(SourceError) as caught:
        freeze(make_spec(uri))
    assert rule in caught.value.message
    assert caught.value.message.startswith("source src: sources.src.")
    assert set(caught.value.details) == {"source", "field", "uri", "rule"}


def test_freeze_when_lanes_exceed_units_then_says_so(tmp_path: Path, freeze: Freeze, make_spec: MakeSpec) -> None:
    write_jsonl(tmp_path / "a.jsonl", rows(3))
    with pytest.raises(SourceError, match=r"sources\.src\.lanes: .* has 1 units .* got 4"):
        freeze(make_spec("a.jsonl", lanes=4))


def test_check_unchanged_when_nothing_changed_then_passes(tmp_path: Path, freeze: Freeze, make_spec: MakeSpec) -> None:
    write_jsonl(tmp_path / "a.jsonl", rows(3))
    spec = make_spec("a.jsonl")
    check_unchanged(freeze(spec), spec)


def _replace(path: Path) -> None:
    path.write_bytes(b"{}\n")


def _touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (Path.unlink, "is missing now"),
        (lambda path: path.write_bytes(b"{}\n"), "must not change"),
        (_touch, "must not"),
    ],
)
def test_check_unchanged_when_a_shard_changed_then_names_it(
    change: Callable[[Path], object], rule: str, tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    for name in ("a", "b"):
        write_jsonl(tmp_path / f"{name}.jsonl", rows(3))
    spec = make_spec("*.jsonl")
    manifest = freeze(spec)
    change(tmp_path / "b.jsonl")
    with pytest.raises(SourceError, match=f"b.jsonl .*{rule}"):
        check_unchanged(manifest, spec)


def test_survey_when_parquet_then_counts_exactly_and_warns_of_drift(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    write_parquet(tmp_path / "a.parquet", {"text": ["x"] * 30}, row_group_size=10)
    write_parquet(tmp_path / "b.parquet", {"other": pa.array([], pa.int64())})
    spec = make_spec("*.parquet")
    survey = survey_source(freeze(spec), spec)
    assert (survey.shards, survey.num_rows, survey.is_estimate) == (2, 30, False)
    assert survey.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    assert any("1 of 2 shards have no column 'text'" in warning for warning in survey.warnings)
    assert any("1 shards have no rows" in warning for warning in survey.warnings)


def test_survey_when_jsonl_is_small_then_counts_exactly(tmp_path: Path, freeze: Freeze, make_spec: MakeSpec) -> None:
    write_jsonl(tmp_path / "a.jsonl", rows(500))
    (tmp_path / "b.jsonl").write_bytes(b"")
    spec = make_spec("*.jsonl", block_bytes=4096)
    survey = survey_source(freeze(spec), spec)
    assert (survey.num_rows, survey.is_estimate) == (500, False)
    assert survey.blocks == -(-(tmp_path / "a.jsonl").stat().st_size // 4096)
    assert survey.warnings == (f"1 shards have no rows: {tmp_path / 'b.jsonl'}",)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_survey_when_jsonl_is_large_then_estimates(
    suffix: str, tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    chance = random.Random(9)
    data = b"".join(b'{"text": "%s"}\n' % chance.randbytes(1000).hex().encode() for _ in range(12_000))
    packed = {"": lambda: data, ".gz": lambda: gzip.compress(data, 1), ".zst": lambda: _zstd(data)}[suffix]()
    (tmp_path / f"a.jsonl{suffix}").write_bytes(packed)
    spec = make_spec(f"a.jsonl{suffix}", block_bytes=1 << 20)
    survey = survey_source(freeze(spec), spec)
    assert survey.is_estimate
    assert survey.num_rows == pytest.approx(12_000, rel=0.1)


def _zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def test_survey_when_the_source_is_one_stream_then_warns_that_nothing_shuffles_it(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n'))
    spec = make_spec("a.jsonl.gz")
    survey = survey_source(freeze(spec), spec)
    assert (survey.blocks, survey.num_rows) == (None, 1)
    assert any("rows are not shuffled" in warning for warning in survey.warnings)


@pytest.mark.parametrize("is_file", [True, False])
def test_survey_when_arrow_or_tar_then_counts(
    is_file: bool, tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    if is_file:
        batch = pa.record_batch({"text": ["a", "b"]})
        with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
            writer.write_batch(batch)
        spec = make_spec("a.arrow")
    else:
        (tmp_path / "a.tar").write_bytes(tar_of([(f"{i}.txt", b"x") for i in range(4)]))
        spec = make_spec("a.tar", transform=TransformSpec(text="txt"))
    survey = survey_source(freeze(spec), spec)
    assert (survey.num_rows, survey.is_estimate) == (4, False)


def test_freeze_when_empty_shards_lie_around_one_with_rows_then_accepted(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    for name, content in {"a": b"", "b": b"\n\n", "c": b'{"text": "x"}\n', "d": b""}.items():
        (tmp_path / f"{name}.jsonl").write_bytes(content)
    assert [shard.size_bytes for shard in freeze(make_spec(tmp_path / "*.jsonl")).shards] == [0, 2, 14, 0]


ROW_GROUP_BYTES = 10_000


def write_groups(path: Path, num_groups: int, **more: list[str]) -> Path:
    """A Parquet file of row groups of about ROW_GROUP_BYTES of incompressible text."""
    texts = [random.Random(i).randbytes(ROW_GROUP_BYTES // 20).hex() for i in range(10 * num_groups)]
    options = {"use_dictionary": False, "write_statistics": False}  # no bytes but the text's
    return write_parquet(path, {"text": texts, **more}, row_group_size=10, **options)


@pytest.mark.parametrize(("num_blocks", "lanes"), [(0.5, 1), (1.5, 1), (3.5, 3), (7.5, 7), (100, 12)])
def test_freeze_when_footers_tell_then_the_lanes_blocks_fit_the_share(
    num_blocks: float, lanes: int, tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    write_groups(tmp_path / "a.parquet", 12)
    manifest = freeze(make_spec("a.parquet"), shuffle_bytes=int(num_blocks * ROW_GROUP_BYTES))
    assert manifest.lanes == lanes


def test_freeze_when_other_columns_are_wide_then_only_what_is_read_counts(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    wide = [random.Random(i).randbytes(10_000).hex() for i in range(80)]
    write_groups(tmp_path / "a.parquet", 8, text_en=wide)
    assert freeze(make_spec("a.parquet"), shuffle_bytes=4 * ROW_GROUP_BYTES + 4_000).lanes == 4
    whole = make_spec("a.parquet", transform=TransformSpec(function="json:dumps"))
    assert freeze(whole, shuffle_bytes=4 * ROW_GROUP_BYTES + 4_000).lanes == 1


def test_freeze_when_one_block_is_larger_than_others_then_it_counts_once(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    write_groups(tmp_path / "a.parquet", 8)
    write_parquet(tmp_path / "b.parquet", {"text": ["x" * 1000 + str(i) for i in range(40)]}, row_group_size=40)
    assert freeze(make_spec("*.parquet"), shuffle_bytes=int(7.5 * ROW_GROUP_BYTES)).lanes == 4


def test_freeze_when_shards_are_many_then_the_first_footer_stands_for_all(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    write_groups(tmp_path / "00.parquet", 4)
    for index in range(1, 20):
        (tmp_path / f"{index:02}.parquet").write_bytes(b"not looked at")
    manifest = freeze(make_spec("*.parquet"), shuffle_bytes=int(2.5 * ROW_GROUP_BYTES))
    assert (manifest.unit_kind, manifest.lanes) == (UnitKind.SHARD, 2)


def test_freeze_when_arrow_shards_are_many_then_only_the_first_is_opened(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    batch = pa.record_batch({"text": ["a"]})
    with pa.OSFile(str(tmp_path / "00.arrow"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    for index in range(1, 9):
        (tmp_path / f"{index:02}.arrow").write_bytes(b"not looked at")
    manifest = freeze(make_spec("*.arrow", lanes=2))
    assert [shard.is_seekable for shard in manifest.shards] == [True] * 9


def test_survey_when_the_lanes_blocks_exceed_the_share_then_warns_with_the_bytes(
    tmp_path: Path, freeze: Freeze, make_spec: MakeSpec
) -> None:
    write_groups(tmp_path / "a.parquet", 3)
    for spec, share, warning in (
        (make_spec("a.parquet"), 5_000, r"the block of its one lane may take 10\d+ bytes, .*shuffle_bytes is 5000"),
        (make_spec("a.parquet", lanes=3), 25_000, r"the blocks of its 3 lanes may take 30\d+ bytes"),
        (make_spec("a.parquet"), 40_000, None),
    ):
        warnings = survey_source(freeze(spec, shuffle_bytes=share), spec, shuffle_bytes=share).warnings
        assert [bool(re.search(warning or "", text)) for text in warnings] == [True] * (warning is not None)
