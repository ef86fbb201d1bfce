"""A dataloader for torchtitan 0.3: put its Config where a training config has `dataloader`.

    config.dataloader = LoadmasterDataLoader.Config(target="http://127.0.0.1:8700", run="demo")
    config.training.local_batch_size = 1
    config.training.global_batch_size = 32          # microbatches of the run: all ranks of a step
    config.training.seq_len = 8192                  # as the run's batch.seq_len
    config.checkpoint.enable = True                 # torch.distributed.checkpoint calls state_dict and load_state_dict

Context parallelism is torchtitan's own: its cp and tp ranks read the same microbatches, `mesh: {dp: ..., tp: cp * tp}`.
Run as a script it trains a tiny model as torchtitan's `train_step` does, on one process, without CUDA:

    python examples/recipes/torchtitan_dataloader.py run.yaml --folder checkpoints --accumulate 4
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import IGNORE_INDEX, CrossEntropyLoss

import loadmaster
from loadmaster import adapters


class LoadmasterDataLoader(BaseDataLoader):
    """Microbatches of a stream, one a turn. A step is over when all of its microbatches were taken."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """`target` is a planner's address, or the path of a run spec."""

        target: str = ""
        run: str | None = None

    def __init__(self, config: Config, *, seq_len: int = 0, local_batch_size: int = 1, **_: Any) -> None:
        """`Config.build` gives what the trainer knows; a rank is found by RANK and WORLD_SIZE, which torchrun sets."""
        if local_batch_size != 1:
            raise ValueError(f"local_batch_size must be 1, a microbatch is one packed sequence, got {local_batch_size}")
        self.seq_len, self._num_left = seq_len, 0
        self.stream = loadmaster.connect(config.target, run=config.run)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        for batch in self.stream:
            self._num_left = len(batch)
            for microbatch in batch.microbatches():
                inputs, labels = adapters.torchtitan(microbatch)
                if self.seq_len not in (0, labels.shape[1]):
                    raise ValueError(f"training.seq_len must be {labels.shape[1]} as in the run, got {self.seq_len}")
                self._num_left -= 1
                yield inputs, labels

    def state_dict(self) -> dict[str, Any]:
        """One value whatever the state holds: torch.distributed.checkpoint loads the keys that are there already."""
        if self._num_left:
            raise ValueError(
                f"{self._num_left} microbatches of this step were not taken: training.global_batch_size must be "
                "the run's batch.microbatches"
            )
        return {"loadmaster": json.dumps(self.stream.state_dict())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after the step that was trained last."""
        if state_dict:
            self.stream.load_state_dict(json.loads(state_dict["loadmaster"]))


class Model(torch.nn.Module):
    """Stands for one of torchtitan's, which need CUDA: the next token of each token."""

    def __init__(self, vocab_size: int, dim: int = 64) -> None:
        super().__init__()
        self.embedding, self.out = torch.nn.Embedding(vocab_size, dim), torch.nn.Linear(dim, vocab_size)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits; torchtitan's own make document masks of `positions`."""
        return self.out(self.embedding(tokens))


def train_step(model: Model, optimizer: torch.optim.Optimizer, batches: Iterator[Any], accumulate: int) -> bool:
    """As torchtitan's: all microbatches first, then their count, then each one's part. False at the end of the data."""
    optimizer.zero_grad()
    taken = [found for _, found in zip(range(accumulate), batches, strict=False)]
    if len(taken) < accumulate:
        return False
    global_valid_tokens = torch.stack([(labels != IGNORE_INDEX).sum() for _, labels in taken]).sum()
    loss_fn = CrossEntropyLoss(CrossEntropyLoss.Config())
    for inputs, labels in taken:
        loss, _ = loss_fn(model(inputs["input"], inputs["positions"]), labels, global_valid_tokens)
        loss.backward()
    optimizer.step()
    return True


def main(argv: Sequence[str] | None = None) -> torch.nn.Module:
    """Train to the end of the stream or `--steps`; returns the model."""
    options = parse(argv)
    torch.manual_seed(0)
    model = Model(options.vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    loader = LoadmasterDataLoader.Config(target=options.target, run=options.run).build(local_batch_size=1)
    with loader.stream:
        states = {"model": model, "optimizer": Optimizer(model, optimizer), "dataloader": loader}
        done = last_step(options.folder)
        if done:
            dcp.load(states, checkpoint_id=f"{options.folder}/step-{done}", no_dist=True)
        batches = iter(loader)
        for step in range(done + 1, options.steps + 1):
            if not train_step(model, optimizer, batches, options.accumulate):
                break
            if step % options.save_every == 0:
                dcp.save(states, checkpoint_id=f"{options.folder}/step-{step}", no_dist=True)
    return model


class Optimizer:
    """An optimizer's state by the names of its parameters, so that it can be loaded before the first step."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        """By name."""
        return get_optimizer_state_dict(self.model, self.optimizer)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """By name."""
        set_optimizer_state_dict(self.model, self.optimizer, state_dict)


def last_step(folder: str) -> int:
    """The newest checkpoint's; 0 at the first start."""
    return max((int(path.name.removeprefix("step-")) for path in Path(folder).glob("step-*")), default=0)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train as torchtitan does on batches from Loadmaster.")
    parser.add_argument("target", help="address of the planner, or a run spec (YAML) to load embedded")
    parser.add_argument("--run", help="name of the run")
    parser.add_argument("--folder", default="checkpoints", help="where checkpoints are kept")
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps")
    parser.add_argument("--accumulate", type=int, default=4, help="microbatches of a step on this rank")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
