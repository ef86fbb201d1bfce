"""docs/formats.md: every source it shows is read, and its tables name what there is."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.sources.media_files import MediaFiles
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec import SourceFormat, SourceSpec, load_run_spec
from loadmaster_server.cli.init import main as init
from support.energon_writer import CAPTIONS, write_energon
from support.mds_writer import write_mds

from ..sources.conftest import tar_of, write_parquet

TEXT = (Path(__file__).parents[2] / "docs/formats.md").read_text("utf-8")
SOURCES = {
    name: tree
    for text in re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.M | re.S)
    for name, tree in yaml.safe_load(text).items()
}
COMMANDS = re.findall(r"^```bash\n(.*?)\n```$", TEXT, re.M | re.S)
EXPECTED = {
    "photos": ([b"image 0", b"image 1"], ["caption 0", "caption 1"]),
    "pairs": ([b"image 0", b"image 1"], ["caption 0", "caption 1"]),
    "drawings": ([b"image 0", b"image 1"], ["caption 0", "caption 1"]),
    "clips": ([b"image 0", b"image 1"], ["caption 0", "caption 1"]),
    "streaming": ([b"image 0", b"image 1"], ["caption 0", "caption 1"]),
    "coco": ([b"image %d" % i for i in range(8, 12)], [f"caption {i}" for i in range(8, 12)]),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of every kind that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    for name in ("photos/images", "shards", "drawings", "clips"):
        (tmp_path / name).mkdir(parents=True)
    pairs = [(i, b"image %d" % i, f"caption {i}") for i in range(2)]
    rows = {"image": [f"{i}.jpg" for i, *_ in pairs], "caption": [caption for *_, caption in pairs]}
    write_parquet(tmp_path / "photos" / "a.parquet", rows)
    lines = [json.dumps({"file_name": f"{i}.jpg", "text": caption}) for i, _, caption in pairs]
    (tmp_path / "drawings" / "metadata.jsonl").write_text("\n".join(lines))
    for i, image, caption in pairs:
        for name in ("photos/images", "drawings", "clips"):
            (tmp_path / name / f"{i}.jpg").write_bytes(image)
        (tmp_path / "clips" / f"{i}.txt").write_text(caption)
    members = [(f"images/{i:04}.jpg", image) for i, image, _ in pairs]
    members += [(f"captions/{i:04}.txt", caption.encode()) for i, _, caption in pairs]
    (tmp_path / "shards" / "0.tar").write_bytes(tar_of(members))
    samples = [{"image": image, "caption": caption} for _, image, caption in pairs]
    write_mds(tmp_path / "streaming" / "train", {"image": "jpeg", "caption": "str"}, [samples], is_packed=True)
    write_energon(tmp_path / "coco", dataset=CAPTIONS)
    blend = {"splits": {"train": {"blend": [{"weight": 1, "path": "coco"}]}}}
    (tmp_path / "metadataset.yaml").write_text(yaml.safe_dump(blend))
    return tmp_path


def test_sources_when_shown_then_all_are_tried() -> None:
    assert set(SOURCES) == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_source_when_shown_then_is_read_as_the_page_says(name: str, folder: Path) -> None:
    spec = SourceSpec.model_validate(SOURCES[name])
    manifest = freeze_source(name, 0, spec, base_dir=folder, shuffle_bytes=1 << 20, fingerprint="")
    with SourceReader(manifest, spec) as reader:
        block = reader.read_block(0, 0)
    rows = np.arange(block.num_rows)
    media = MediaFiles(manifest, spec)
    (path,) = spec.transform.image
    images = [media.read(0, value, 1000) for value in block.column(path, rows)]
    assert spec.transform.text is not None
    assert (images, block.column(spec.transform.text, rows)) == EXPECTED[name]


def test_command_when_shown_then_writes_a_spec(folder: Path) -> None:
    (command,) = COMMANDS
    _, subcommand, *argv = shlex.split(command)
    assert subcommand == "init"
    assert init(argv) == 1  # the images of this test are none, and there is no tokenizer
    assert load_run_spec(folder / "run.yaml").sources["coco"].format is SourceFormat.ENERGON


def test_table_when_read_then_names_every_format() -> None:
    named = {
        name
        for line in TEXT.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert {kind.value for kind in SourceFormat} - {"auto"} <= named
