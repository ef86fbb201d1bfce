"""The trainer that users copy: documents stay apart, and microbatches add up to a step."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import loadmaster

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCE = EXAMPLES / "train_gpt.py"
PLACEHOLDERS = torch.tensor([7, 8])
"""Ids of <|image_pad|> and <|video_pad|> in the example tokenizer."""


@pytest.fixture(scope="module")
def train_gpt() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_gpt", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_gpt"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(train_gpt: ModuleType) -> object:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "max_len": 16, "image_dim": 0, "dim": 32, "num_layers": 2, "num_heads": 2}
    return train_gpt.GPT(train_gpt.GPTConfig(**sizes))


def _microbatch(lengths: list[int], seed: int = 0) -> SimpleNamespace:
    num_tokens = sum(lengths)
    tokens = torch.randint(0, 50, (num_tokens,), generator=torch.Generator().manual_seed(seed))
    return SimpleNamespace(
        tokens=tokens,
        labels=tokens.roll(-1),
        position_ids=torch.cat([torch.arange(n) for n in lengths]),
        cu_seqlens=torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0),
        images=None,
    )


def test_logits_when_another_document_changes_then_same(model: torch.nn.Module) -> None:
    microbatch = _microbatch([6, 5, 5])
    before = model(microbatch)
    microbatch.tokens = microbatch.tokens.clone()
    microbatch.tokens[:6] = (microbatch.tokens[:6] + 1) % 50
    after = model(microbatch)
    assert torch.equal(before[6:], after[6:])
    assert not torch.allclose(before[:6], after[:6])


def test_logits_when_a_later_token_changes_then_earlier_ones_same(model: torch.nn.Module) -> None:
    microbatch = _microbatch([8])
    before = model(microbatch)
    microbatch.tokens = microbatch.tokens.clone()
    microbatch.tokens[-1] = (microbatch.tokens[-1] + 1) % 50
    assert torch.allclose(before[:-1], model(microbatch)[:-1], atol=1e-6)


def test_train_step_when_split_into_microbatches_then_same_loss_and_gradient(
    train_gpt: ModuleType, model: torch.nn.Module
) -> None:
    whole, parts = _microbatch([6, 5]), [_microbatch([6, 5]), _microbatch([6, 5])]
    for part, keep in zip(parts, (slice(0, 6), slice(6, 11)), strict=True):
        part.labels = torch.full_like(whole.labels, -100)
        part.labels[keep] = whole.labels[keep]
    results = []
    for microbatches in ([whole], parts):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        batch = SimpleNamespace(microbatches=lambda m=microbatches: iter(m), global_valid_tokens=11)
        loss = train_gpt.train_step(model, optimizer, batch)
        results.append((loss, [p.grad.clone() for p in model.parameters()]))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    for one, two in zip(results[0][1], results[1][1], strict=True):
        assert torch.allclose(one, two, atol=1e-6)


@pytest.fixture(scope="module")
def demo_batch() -> loadmaster.Batch:
    """The first step of the demo on one of two ranks."""
    with loadmaster.connect(str(EXAMPLES / "demo.yaml"), rank=0, world_size=2) as stream:
        return next(iter(stream))


@pytest.fixture
def vision_model(train_gpt: ModuleType) -> torch.nn.Module:
    torch.manual_seed(0)
    return train_gpt.GPT(train_gpt.GPTConfig(dim=32, num_layers=1, num_heads=2))


def test_embed_when_there_are_pictures_then_each_is_at_its_placeholders(
    train_gpt: ModuleType, vision_model: torch.nn.Module, demo_batch: loadmaster.Batch
) -> None:
    pictured = [m for m in demo_batch.microbatches() if not m.images.is_dummy]
    assert pictured
    for microbatch in pictured:
        x_TE, plain_TE = vision_model.embed(microbatch), vision_model.tokens(microbatch.tokens)
        is_changed_T = (x_TE != plain_TE).any(dim=1)
        assert torch.equal(is_changed_T, torch.isin(microbatch.tokens, PLACEHOLDERS))
        images, at = microbatch.images, 0
        for grid, start in zip(images.grid_thw.tolist(), images.token_start.tolist(), strict=True):
            patches = math.prod(grid)
            values = loadmaster.vision.normalise(images.pixel_values[at : at + patches], images.mean, images.std)
            wanted = vision_model.images(values.reshape(patches // 4, -1))
            assert torch.allclose(x_TE[start : start + patches // 4], wanted, atol=1e-5)
            at += patches


def test_train_step_when_there_are_pictures_then_their_layer_learns_from_the_captions(
    train_gpt: ModuleType, vision_model: torch.nn.Module, demo_batch: loadmaster.Batch
) -> None:
    for microbatch in demo_batch.microbatches():
        assert not torch.isin(microbatch.tokens[1:], PLACEHOLDERS)[microbatch.labels[:-1] >= 0].any()
    optimizer = torch.optim.SGD(vision_model.parameters(), lr=0.0)
    train_gpt.train_step(vision_model, optimizer, demo_batch)
    assert vision_model.images.weight.grad.abs().sum() > 0


def test_train_step_when_a_rank_has_no_pictures_then_every_parameter_has_a_gradient(
    train_gpt: ModuleType, vision_model: torch.nn.Module, tmp_path: Path
) -> None:
    """Ranks sum their gradients: none may be missing where a rank had a dummy."""
    text = (EXAMPLES / "demo.yaml").read_text("utf-8").replace("data/", f"{EXAMPLES}/data/")
    spec = re.sub(r"pictures: 0.08|clips: 0.02", lambda found: found[0].split(":")[0] + ": 0", text)
    (tmp_path / "run.yaml").write_text(spec)
    with loadmaster.connect(str(tmp_path / "run.yaml")) as stream:
        batch = next(iter(stream))
    assert all(microbatch.images.is_dummy for microbatch in batch.microbatches())
    train_gpt.train_step(vision_model, torch.optim.SGD(vision_model.parameters(), lr=0.0), batch)
    assert all(parameter.grad is not None for parameter in vision_model.parameters())
    assert not vision_model.images.weight.grad.any()
