"""Energon datasets: splits, fields, samples that are left out, and folders that were not prepared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.sources.energon import has_code
from loadmaster_flight.sources.fields import accesses_of, inside
from loadmaster_flight.sources.files import FileStore
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.manifest import SourceManifest
from loadmaster_flight.spec.source import SourceSpec, TransformSpec
from loadmaster_flight.wire.errors import SourceError
from support.energon_writer import CAPTIONS, write_energon

MAPPED = TransformSpec(image="image", text="caption")


@pytest.fixture
def energon_spec(make_spec: Callable[..., SourceSpec]) -> Callable[..., SourceSpec]:
    def make(folder: Path, *, transform: TransformSpec = MAPPED, **fields: Any) -> SourceSpec:
        return make_spec(folder, format="energon", transform=transform, **fields)

    return make


def column(reader: SourceReader, shards: int, path: str) -> list[object]:
    blocks = [block for shard in range(shards) for block in reader.blocks(shard)]
    return [value for block in blocks for value in block.column(path, np.arange(block.num_rows))]


def test_fields_when_dataset_yaml_maps_them_then_are_columns(
    tmp_path: Path, energon_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    reader = open_reader(energon_spec(write_energon(tmp_path / "set", dataset=CAPTIONS)))
    assert column(reader, 2, "caption") == [f"caption {i}" for i in range(8)]
    assert column(reader, 2, "image") == [b"image %d" % i for i in range(8)]


def test_row_when_a_function_reads_it_then_has_fields(
    tmp_path: Path, energon_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    spec = energon_spec(
        write_energon(tmp_path / "set", dataset=CAPTIONS), transform=TransformSpec(function="mine:call")
    )
    row = open_reader(spec).read_block(0, 0).row(1)
    assert row == {"__key__": "000001", "image": b"image 1", "caption": "caption 1"}


def test_split_when_named_then_its_shards_are_read(
    tmp_path: Path, energon_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    folder = write_energon(tmp_path / "set", dataset=CAPTIONS)
    assert [Path(shard.uri).name for shard in freeze(energon_spec(folder)).shards] == ["shard_0.tar", "shard_1.tar"]
    assert [Path(shard.uri).name for shard in freeze(energon_spec(folder, split="val")).shards] == ["shard_2.tar"]
    with pytest.raises(SourceError, match="has no split 'test'; there are train, val"):
        freeze(energon_spec(folder, split="test"))


def test_samples_when_excluded_then_are_no_rows(
    tmp_path: Path, energon_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    exclude = ["shard_0.tar/000001", "shard_1.tar/{000004,000006}"]
    spec = energon_spec(write_energon(tmp_path / "set", dataset=CAPTIONS, exclude=exclude))
    assert column(open_reader(spec), 2, "caption") == [f"caption {i}" for i in (0, 2, 3, 5, 7)]


def test_dataset_when_crude_then_members_are_columns(
    tmp_path: Path, energon_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    crude = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
    spec = energon_spec(
        write_energon(tmp_path / "set", dataset=crude), transform=TransformSpec(image="jpg", text="json.text")
    )
    reader = open_reader(spec)
    assert column(reader, 2, "json.text") == [f"caption {i}" for i in range(8)]
    assert column(reader, 2, "jpg") == [b"image %d" % i for i in range(8)]


def test_dataset_when_it_has_code_then_the_code_is_not_run(
    tmp_path: Path, energon_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    folder = write_energon(
        tmp_path / "set", dataset={"sample_loader": "sample_loader.py:load", "part_filter": "x.py:y"}
    )
    (folder / ".nv-meta" / "sample_loader.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert has_code(FileStore({}, source="src"), "src", str(folder))
    reader = open_reader(energon_spec(folder, transform=TransformSpec(text="json.text")))
    assert column(reader, 2, "json.text")[0] == "caption 0"
    assert not (tmp_path / "ran").exists()


def test_yaml_when_it_names_python_objects_then_none_is_made(
    tmp_path: Path, energon_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    folder = write_energon(tmp_path / "set", dataset=CAPTIONS)
    call = f"part_filter: !!python/object/apply:pathlib.Path.touch [{tmp_path / 'ran'}]\n"
    evil = f"{call}field_map:\n  caption: json[text]\n"
    (folder / ".nv-meta" / "dataset.yaml").write_text(evil)
    freeze(energon_spec(folder, transform=TransformSpec(text="caption")))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("split", "run `energon prepare`, or read the tar files with format webdataset"),
        ("shard", r"shard_1\.tar is named by its folder and does not exist"),
        ("field", r"field_map\.image that cannot be read: a field must be member"),
        ("yaml", "split.yaml cannot be read"),
    ],
)
def test_dataset_when_it_is_not_whole_then_refuses_to_start(
    change: str,
    message: str,
    tmp_path: Path,
    energon_spec: Callable[..., SourceSpec],
    freeze: Callable[..., SourceManifest],
) -> None:
    folder = write_energon(
        tmp_path / "set", dataset={"field_map": {"image": "jpg]["}} if change == "field" else CAPTIONS
    )
    if change == "shard":
        (folder / "shard_1.tar").unlink()
    elif change == "yaml":
        (folder / ".nv-meta" / "split.yaml").write_text("{")
    elif change == "split":
        (folder / ".nv-meta" / "split.yaml").unlink()
    with pytest.raises(SourceError, match=message):
        freeze(energon_spec(folder))


def test_manifest_when_frozen_then_keeps_fields_through_json(
    tmp_path: Path, energon_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    manifest = freeze(energon_spec(write_energon(tmp_path / "set", dataset=CAPTIONS, exclude=["shard_0.tar/000001"])))
    again = SourceManifest.model_validate(json.loads(manifest.model_dump_json()))
    assert (again.field_map, again.excluded) == ({"image": "png,jpg", "caption": "json[text]"}, ("shard_0.tar/000001",))


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("json[a][1]", {"a": [5, 6]}, 6),
        ("json[a][2]", {"a": [5, 6]}, None),
        ("json[a]", "no mapping", None),
        ("json", RowFault(reason="r"), RowFault(reason="r")),
        ("json[a]", RowFault(reason="r"), RowFault(reason="r")),
    ],
)
def test_access_when_followed_then_gives_what_lies_there(text: str, value: object, expected: object) -> None:
    (access,) = accesses_of(text)
    assert inside(value, access.keys) == expected
