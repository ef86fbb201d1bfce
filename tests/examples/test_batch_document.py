"""docs/batch.md: its snippets run, and its tables are what a batch has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import torch
import torch.distributed as dist
import yaml

import loadmaster
from loadmaster import adapters
from loadmaster.batch import to_batch
from loadmaster.tensors import Framework
from loadmaster_flight.constructor.modalities import run_schema
from loadmaster_flight.constructor.slices import build_ranks, slot_at
from loadmaster_flight.spec import MeshSpec
from loadmaster_flight.wire.schemas import MediaKind, batch_schema
from support.pictures import Doc, plan_of, sent, spec_of

TEXT = (Path(__file__).parents[2] / "docs/batch.md").read_text("utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
VOCAB = 64


def rows_of(header: str) -> list[list[str]]:
    """Cells of all tables that have a header."""
    tables = re.findall(rf"^{re.escape(header)}\n\| [-| ]+\n((?:\|.*\n)+)", TEXT, re.M)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a run of token ids."""
    rows = [{"ids": [(7 * i + j) % (VOCAB - 1) + 1 for j in range(3 + i % 40)]} for i in range(400)]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "run": "document",
        "vocab_size": VOCAB,
        "sources": {"ids": {"uri": "ids.jsonl", "transform": {"tokens": "ids"}}},
        "batch": {"seq_len": 128, "microbatches": 2, "align": 8},
        "mesh": {"tp_mode": "broadcast"},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tp_group(folder: Path) -> Iterator[Any]:
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


class Uniform(torch.nn.Module):
    """Takes what a causal language model does; every token is as likely as any other."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(VOCAB))

    def forward(self, *, shift_labels: torch.Tensor, num_items_in_batch: int, **_: Any) -> SimpleNamespace:
        counts = torch.nn.functional.cross_entropy(
            self.logits.expand(shift_labels.numel(), -1), shift_labels.flatten(), reduction="sum"
        )
        return SimpleNamespace(loss=counts / num_items_in_batch)


def test_snippets_when_run_in_order_then_they_do_what_the_text_says(
    folder: Path, tp_group: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(SNIPPETS) == 7
    names: dict[str, Any] = {"tp_group": tp_group, "model": Uniform()}
    for snippet in SNIPPETS:
        exec(compile(snippet, "docs/batch.md", "exec"), names)
    assert capsys.readouterr().out.startswith("torch.Size([128]) [0, ")
    assert names["packed_seq_params"]["cu_seqlens_q"].tolist()[-1] == 128
    assert names["model"].logits.grad is not None


def test_yaml_when_read_then_it_is_a_mesh() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.M | re.S)
    mesh = MeshSpec.model_validate(yaml.safe_load(text)["mesh"])
    has_tokens = [mesh.is_on_stage("tokens", stage=stage, num_stages=4) for stage in range(4)]
    assert has_tokens == [True, False, False, True]


@pytest.mark.parametrize(("framework", "column"), [("torch", 2), ("numpy", 3)])
def test_fields_when_compared_with_a_batch_then_dtypes_and_slicing_are_as_told(
    folder: Path, framework: str, column: int
) -> None:
    with loadmaster.connect("run.yaml", framework=framework) as stream:
        whole = next(stream)
    with loadmaster.connect("run.yaml", framework=framework, world_size=2, mesh={"cp": 2}) as stream:
        half = next(stream)
    rows = rows_of("| field | shape | torch | numpy | axis | cp | pp |")
    assert len(rows) == 8
    for row in rows:
        (name,) = names_in(row[0])
        value, part = getattr(whole, name), getattr(half, name)
        assert kind_of(value) == row[column], name
        assert (size_of(part) * 2 == size_of(value)) == (row[5] == "sliced"), name


def kind_of(value: Any) -> str:
    if isinstance(value, list):
        return kind_of(value[0])
    if isinstance(value, loadmaster.Documents):
        return str(value.row.dtype)
    return str(value.dtype).removeprefix("torch.") if hasattr(value, "dtype") else type(value).__name__


def size_of(value: Any) -> int:
    return value.shape[-1] if hasattr(value, "shape") else -1


def test_stages_when_compared_with_the_default_mesh_then_fields_go_where_told() -> None:
    words = {("first",): "first stage", ("last",): "last stage", ("all",): "all"}
    derived = {"loss_mask": "labels", "position_ids": "cu_seqlens", "max_seqlen": "cu_seqlens"}
    for row in rows_of("| field | shape | torch | numpy | axis | cp | pp |"):
        (name,) = names_in(row[0])
        assert words[MeshSpec().stages_of(derived.get(name, name))] == row[6], name


def test_adapter_tables_when_compared_with_their_dicts_then_shapes_and_dtypes_are_as_told(folder: Path) -> None:
    with loadmaster.connect("run.yaml") as stream:
        microbatch = next(next(stream).microbatches())
    sizes = {"T": 128, "E": len(microbatch.cu_seqlens), "1": 1}
    told = {name: row[1:] for row in rows_of("| field | shape | dtype |") for name in names_in(row[0])}
    inputs, _ = adapters.torchtitan(microbatch)
    for fields in (adapters.transformers(microbatch, seq_idx=True), inputs, adapters.megatron(microbatch)):
        for name, value in fields.items():
            if name in ("labels", "position_ids") or isinstance(value, int):
                continue  # told more than once, each with its own shape; or a plain int
            shape, dtype = told[name]
            assert tuple(value.shape) == tuple(sizes[letter] for letter in re.findall(r"\w", shape)), name
            assert str(value.dtype) == f"torch.{dtype}", name


def test_wire_table_when_compared_with_the_schema_then_types_and_axes_are_as_told() -> None:
    schema = batch_schema(seq_len=16)
    told = {name: row[1:] for row in rows_of("| field | type | axis |") for name in names_in(row[0])}
    assert set(told) == set(schema.names)
    for field in schema:
        assert [type_of(field.type), field.metadata[b"axis"].decode()] == told[field.name], field.name


def test_media_table_when_compared_with_the_schema_then_types_and_axes_are_as_told() -> None:
    schema = run_schema(spec_of(seq_len=16, num_bins=1), seq_len=16, is_hybrid=True)
    told = {name: row[1:] for row in rows_of("| media field | type | axis |") for name in names_in(row[0])}
    assert set(told) | set(batch_schema(seq_len=16).names) == set(schema.names)
    for name, (kind, axis) in told.items():
        field = schema.field(name)
        assert field.metadata[b"axis"].decode() == axis, name
        assert kind.startswith(type_of(field.type)), name


def test_embed_when_called_on_a_microbatch_with_images_then_they_are_merged() -> None:
    names: dict[str, Any] = {"loadmaster": loadmaster}
    (snippet,) = (snippet for snippet in SNIPPETS if "def embed(" in snippet)
    exec(compile(snippet, "docs/batch.md", "exec"), names)
    docs = [Doc(bin=0, pos=0, media=((MediaKind.IMAGE, (1, 4, 4)),))]
    spec, mesh = spec_of(seq_len=64, num_bins=1), {"pp": 1, "dp": 1, "cp": 1, "tp": 1}
    pieces = sent(plan_of(docs, spec, dp=1), docs, spec, dp_ranks={0}, encoder_ranks=())
    slot = slot_at(mesh, dict.fromkeys(mesh, 0))
    record = build_ranks(plan_of(docs, spec, dp=1), pieces, spec, mesh, {0: slot})[0]
    batch = to_batch(record, step=0, source_names=["web"], num_rows=1, framework=Framework.TORCH)
    model = SimpleNamespace(
        device="cpu",
        encode=lambda pixels, grids: pixels[: int(grids.prod()) // 4, :2] * 0 + 7,
        embed=lambda tokens: torch.zeros(len(tokens), 2),
    )
    found = names["embed"](model, next(batch.microbatches()), None)
    assert found[:, 0].tolist() == [0, 0, 0, 7, 7, 7, 7, *[0] * 57]


def type_of(kind: pa.DataType) -> str:
    if isinstance(kind, pa.FixedShapeTensorType):
        return f"fixed_shape_tensor {kind.value_type} [T]"
    if pa.types.is_large_list(kind):
        return f"large_list rows of {kind.value_type.value_type}"
    if pa.types.is_list(kind) and pa.types.is_fixed_size_list(kind.value_type):
        return f"list (t, h, w) {kind.value_type.value_type}"
    return f"list {kind.value_type}" if pa.types.is_list(kind) else str(kind)
