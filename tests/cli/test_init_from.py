"""`loadmaster init --from`: a metadataset becomes a run spec that reads its shards where they lie."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.spec import load_run_spec
from loadmaster_server.cli.adopt import guess_content
from loadmaster_server.cli.init import main
from support.energon_writer import CAPTIONS, write_energon

CRUDE = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}


@pytest.fixture
def datasets(tmp_path: Path, tokenizer_file: Path) -> Path:
    """Two Energon datasets with real images and a JSONL file, and a tokenizer."""
    target = io.BytesIO()
    Image.new("RGB", (8, 8)).save(target, "JPEG")
    for name, dataset in (("coco", CAPTIONS), ("coyo", CRUDE)):
        write_energon(tmp_path / name, dataset=dataset, images=[target.getvalue()])
    (tmp_path / "lines.jsonl").write_text('{"text": "the hold"}\n')
    shutil.copy(tokenizer_file, tmp_path / "tokenizer.json")
    return tmp_path


def write_metadataset(path: Path, splits: Mapping[str, Any], kind: str = "MetadatasetV2") -> Path:
    path.write_text(yaml.safe_dump({"__module__": "megatron.energon", "__class__": kind, "splits": dict(splits)}))
    return path


def test_init_when_a_blend_then_has_its_datasets_and_shares(datasets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blend = [
        {"weight": 5, "path": "./coco", "subflavors": {"size": "small"}},
        {"weight": 2, "path": "./coyo"},
        {"weight": 1, "path": "./coyo", "split_part": "val"},
        {"weight": 0, "path": "./coco"},
    ]
    path = write_metadataset(datasets / "metadataset.yaml", {"train": {"blend": blend}})
    out = datasets / "runs" / "RUN.yaml"
    out.parent.mkdir()
    assert main(["--from", str(path), "-o", str(out)]) == 0
    spec = load_run_spec(out)
    assert spec.mixture is not None
    assert spec.mixture.unit == "samples"
    assert {name: ramp.knots[0].value for name, ramp in spec.mixture.weights.items()} == pytest.approx(
        {"coco": 0.625, "coyo": 0.25, "coyo-val": 0.125}
    )
    assert spec.sources["coco"].transform.image == ("image",)
    assert spec.sources["coco"].transform.text == "caption"
    assert spec.sources["coyo"].transform.image == ("jpg",)
    assert spec.sources["coyo"].transform.text == "json.text"
    assert spec.sources["coyo-val"].split == "val"
    assert "coco: subflavors of the metadataset is not kept" in capsys.readouterr().err
    for name, source in spec.sources.items():
        freeze_source(name, 0, source, base_dir=out.parent, shuffle_bytes=1 << 20, fingerprint="")


def test_init_when_nested_or_of_version_1_then_shares_are_multiplied(datasets: Path) -> None:
    inner = [{"weight": 1, "path": "coyo"}, {"weight": 3, "path": "lines.jsonl"}]
    write_metadataset(datasets / "inner.yaml", {"train": {"datasets": inner}}, kind="Metadataset")
    outer = [{"weight": 1, "path": "coco"}, {"weight": 1, "path": "inner.yaml"}]
    path = write_metadataset(datasets / "outer.yaml", {"train": {"blend": outer}})
    out = datasets / "RUN.yaml"
    assert main(["--from", str(path), "-o", str(out)]) == 0
    weights = yaml.safe_load(out.read_text())["mixture"]["weights"]
    assert weights == pytest.approx({"coco": 0.5, "coyo": 0.125, "lines": 0.375})
    assert load_run_spec(out).sources["lines"].format == "jsonl"


def test_init_when_epochized_then_shares_follow_repetitions_and_sizes(datasets: Path) -> None:
    repeated = [
        {"repetitions": 3, "path": "coco", "split_part": "val"},
        {"repetitions": 0.5, "path": "coyo"},
    ]
    path = write_metadataset(datasets / "metadataset.yaml", {"train": {"blend_epochized": repeated}})
    out = datasets / "RUN.yaml"
    assert main(["--from", str(path), "-o", str(out)]) == 0
    assert yaml.safe_load(out.read_text())["mixture"]["weights"] == pytest.approx({"coco-val": 0.75, "coyo": 0.25})


def test_init_when_a_split_is_one_dataset_then_is_one_source(datasets: Path) -> None:
    path = write_metadataset(datasets / "metadataset.yaml", {"train": {"path": "coco"}, "val": {"path": "coyo"}})
    out = datasets / "RUN.yaml"
    assert main(["--from", str(path), "--split", "val", "-o", str(out)]) == 0
    spec = load_run_spec(out)
    assert (spec.source_names, spec.sources["coyo"].split) == (["coyo"], "val")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"join": [{"path": "coco"}], "joiner": "x"}, "join joins datasets sample by sample"),
        ({"blend": [{"path": "coco", "subset": {"range": [0, 1]}}]}, "subset takes a subset of a dataset"),
        ({"blend": [{"path": "gone"}]}, "must hold .nv-meta/split.yaml"),
        ({"blend": [{"weight": 1}]}, "a dataset must have a path, got the keys weight"),
        ({"path": "metadataset.yaml"}, "nested more than 16 deep"),
        ({"blend": [{"path": "inner.yaml"}]}, "mixes blend with blend_epochized"),
    ],
)
def test_init_when_a_metadataset_cannot_be_kept_then_says_why(
    split: dict[str, Any], message: str, datasets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repeated = [{"repetitions": 2, "path": "coco"}]
    write_metadataset(datasets / "inner.yaml", {"train": {"blend_epochized": repeated}})
    path = write_metadataset(datasets / "metadataset.yaml", {"train": split})
    assert main(["--from", str(path), "-o", str(datasets / "RUN.yaml")]) == 2
    assert message in capsys.readouterr().err
    assert not (datasets / "RUN.yaml").exists()


def test_init_when_neither_or_both_are_given_then_says_so(datasets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main([str(datasets), "--from", "x.yaml"]) == 2
    assert capsys.readouterr().err.count("give either DATA_DIR or --from METADATASET") == 2


@pytest.mark.parametrize(
    "value",
    [b"\xff\xd8\xff\xe0", [b"\xff\xd8\xff\xe0"], {"bytes": b"\xff\xd8\xff\xe0"}, [{"bytes": b"\xff\xd8\xff\xe0"}]],
)
def test_guess_content_when_a_column_holds_pictures_in_any_form_then_it_is_found(value: object) -> None:
    assert guess_content([{"shot": value, "caption": "the hold"}]) == {"image": ["shot"], "text": ["caption"]}
