"""examples/train_numpy.py: the loss falls, and a checkpoint is gone on from."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

SCRIPT = Path(__file__).parents[2] / "examples" / "train_numpy.py"
STEPS = 8


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_numpy", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "train_numpy", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """A run whose next token is always the one after, and where the model is to be kept."""
    rows = [{"ids": [(i + j) % 31 + 1 for j in range(20)]} for i in range(200)]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "run": "counting",
        "vocab_size": 32,
        "sources": {"ids": {"uri": "ids.jsonl", "transform": {"tokens": "ids", "eos": False}}},
        "batch": {"seq_len": 64, "microbatches": 4},
        "until": {"steps": STEPS},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(spec))
    model = str(tmp_path / "model.npz")
    return [str(tmp_path / "run.yaml"), "--checkpoint", model, "--vocab-size", "32", "--width", "8"]


def losses(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss +([\d.]+)", text)]


def test_train_numpy_when_the_next_token_is_certain_then_the_loss_falls_and_a_second_start_goes_on(
    trainer: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(*what: object) -> None:
        real_save(*what)
        raise KeyboardInterrupt

    real_save = trainer.save
    monkeypatch.setattr(trainer, "save", save)
    with pytest.raises(KeyboardInterrupt):
        trainer.main(arguments)
    first = losses(capsys.readouterr().out)
    monkeypatch.setattr(trainer, "save", real_save)
    assert trainer.main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("going on at step 1\n")
    assert out.endswith("done\n")
    assert len(first + losses(out)) == STEPS
    assert losses(out)[-1] < 0.7 * first[0]
