"""The trainers' recipes: after a crash between two checkpoints all is as if there had been none, to the weights."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

import loadmaster

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
STEPS, SAVE_EVERY, CRASH_AT = 6, 2, 3
MICROBATCHES, SEQ_LEN, VOCAB = 4, 64, 32
NEEDS = {
    "transformers_trainer": ("transformers", "accelerate"),
    "lightning_module": ("lightning",),
    "torchtitan_dataloader": ("torchtitan", "torchdata"),
    "megatron_forward_step": ("megatron.core",),
}
OWN = {"megatron_forward_step": ("--seq-len", str(SEQ_LEN))}
"""What one recipe is told beside what all are."""
pytestmark = [
    # What frameworks warn of in themselves; what they say of the recipes is an error as ever.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized"),
]


class Crash(RuntimeError):
    """The training process is gone."""


@pytest.fixture(params=NEEDS)
def recipe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """One of the recipes, imported."""
    name: str = request.param
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package in NEEDS[name]:
            pytest.importorskip(package, reason=f"{package} is not installed (requirements/peers.txt)")
        place = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
        assert place is not None
        assert place.loader is not None
        module = importlib.util.module_from_spec(place)
        monkeypatch.setitem(sys.modules, name, module)
        place.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two sources of token ids, documents of 3 to 40 tokens."""
    folder = tmp_path_factory.mktemp("recipes")
    for name, first in (("up", 1), ("down", 5)):
        rows = [{"ids": [(first * i + j) % (VOCAB - 1) + 1 for j in range(3 + (7 * i) % 38)]} for i in range(300)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = {name: {"uri": f"{name}.jsonl", "transform": {"tokens": "ids", "eos": False}} for name in ("up", "down")}
    batch = {"seq_len": SEQ_LEN, "microbatches": MICROBATCHES}
    run = {"run": "recipe", "vocab_size": VOCAB, "sources": sources, "batch": batch, "until": {"steps": STEPS}}
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    return folder / "run.yaml"


@pytest.fixture
def handed_out(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """Step and samples of each batch that a trainer was given, whoever asked for it."""
    found: list[tuple[int, list[str]]] = []
    real = loadmaster.Stream.__next__

    def noted(stream: loadmaster.Stream) -> loadmaster.Batch:
        batch = real(stream)
        found.append((batch.step, batch.sample_ids))
        return batch

    monkeypatch.setattr(loadmaster.Stream, "__next__", noted)
    return found


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost more than these models do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def train(recipe: ModuleType, spec: Path, tmp_path: Path) -> Callable[..., torch.nn.Module]:
    def run(folder: str) -> torch.nn.Module:
        sizes = ("--steps", str(STEPS), "--save-every", str(SAVE_EVERY), "--accumulate", str(MICROBATCHES))
        own = ("--vocab-size", str(VOCAB), *OWN.get(recipe.__name__, ()))
        model: torch.nn.Module = recipe.main([str(spec), "--folder", str(tmp_path / folder), *sizes, *own])
        return model

    return run


def test_recipe_when_it_crashes_between_checkpoints_then_it_goes_on_as_if_nothing_was(
    train: Callable[..., torch.nn.Module],
    handed_out: list[tuple[int, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = train("whole")
    expected = handed_out[:]
    handed_out.clear()
    assert [step for step, _ in expected] == list(range(STEPS))
    assert len({sample for _, samples in expected for sample in samples}) > STEPS
    crash_after(CRASH_AT, monkeypatch)
    with pytest.raises(Crash):
        train("crashed")
    assert handed_out == expected[: len(handed_out)]
    assert len(handed_out) > SAVE_EVERY  # what was trained since the checkpoint is trained again
    handed_out.clear()
    resumed = train("crashed")
    assert handed_out == expected[SAVE_EVERY:]
    for (name, ours), theirs in zip(resumed.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7, msg=name)


def crash_after(num_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimizer's step after that many never returns, the first time that it comes so far."""
    real, done = torch.optim.AdamW.step, [0]

    def step(optimizer: torch.optim.AdamW, *args: Any, **more: Any) -> Any:
        done[0] += 1
        if done[0] == num_steps + 1:
            raise Crash
        return real(optimizer, *args, **more)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)


def test_recipes_when_listed_then_each_is_tried() -> None:
    assert {name for name in os.listdir(RECIPES) if name.endswith(".py")} == {f"{name}.py" for name in NEEDS}
