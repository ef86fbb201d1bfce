"""The trainer that users copy: documents stay apart, and microbatches add up to a step."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
SOURCE = Path(__file__).parents[2] / "examples/train_gpt.py"


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
    return train_gpt.GPT(train_gpt.GPTConfig(vocab_size=50, max_len=16, dim=32, num_layers=2, num_heads=2))


def _microbatch(lengths: list[int], seed: int = 0) -> SimpleNamespace:
    num_tokens = sum(lengths)
    tokens = torch.randint(0, 50, (num_tokens,), generator=torch.Generator().manual_seed(seed))
    return SimpleNamespace(
        tokens=tokens,
        labels=tokens.roll(-1),
        position_ids=torch.cat([torch.arange(n) for n in lengths]),
        cu_seqlens=torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0),
    )


def test_logits_when_another_document_changes_then_same(model: torch.nn.Module) -> None:
    microbatch = _microbatch([6, 5, 5])
    before = model(microbatch.tokens, microbatch.position_ids, [6, 5, 5])
    changed = microbatch.tokens.clone()
    changed[:6] = (changed[:6] + 1) % 50
    after = model(changed, microbatch.position_ids, [6, 5, 5])
    assert torch.equal(before[6:], after[6:])
    assert not torch.allclose(before[:6], after[:6])


def test_logits_when_a_later_token_changes_then_earlier_ones_same(model: torch.nn.Module) -> None:
    microbatch = _microbatch([8])
    before = model(microbatch.tokens, microbatch.position_ids, [8])
    changed = microbatch.tokens.clone()
    changed[-1] = (changed[-1] + 1) % 50
    assert torch.allclose(before[:-1], model(changed, microbatch.position_ids, [8])[:-1], atol=1e-6)


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
