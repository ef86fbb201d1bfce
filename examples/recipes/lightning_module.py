"""Train with Lightning, and go on exactly where its checkpoint was taken.

    python examples/recipes/lightning_module.py http://127.0.0.1:8700 --run demo --folder checkpoints --devices 4

Lightning's loop takes microbatches and accumulates: `accumulate_grad_batches` must be the run's microbatches divided by
the number of ranks. It fetches one microbatch ahead, so a checkpoint must not ask the stream where it is: each step
brings the state to go on with after it, and what was trained last is what is saved.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import loadmaster
from loadmaster import adapters

IGNORE_INDEX = -100


class StreamData(pl.LightningDataModule):
    """Microbatches of a stream. Each process connects for itself; no sampler and no worker is involved."""

    def __init__(self, target: str, run: str | None = None) -> None:
        super().__init__()
        self.target, self.run = target, run
        self.trained: dict[str, Any] | None = None
        """State after the last step that was trained."""

    def train_dataloader(self) -> Any:
        """Called once by `fit`, after `load_state_dict` where there is a checkpoint."""
        return Microbatches(self)

    def state_dict(self) -> dict[str, Any]:
        """Goes into the checkpoint, under the name of this class."""
        return dict(self.trained or {})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Comes from the checkpoint."""
        self.trained = dict(state_dict) or None


class Microbatches:
    """What Lightning iterates over: tensors, which it moves to the device, and what the last of a step brings along."""

    def __init__(self, data: StreamData) -> None:
        self.data = data

    def __iter__(self) -> Iterator[dict[str, Any]]:
        trainer = self.data.trainer
        place = {"rank": trainer.global_rank, "world_size": trainer.world_size}  # RANK is not always set
        with loadmaster.connect(self.data.target, run=self.data.run, resume=self.data.trained, **place) as stream:
            for batch in stream:
                after, last = stream.state_dict(), len(batch) - 1
                for m, microbatch in enumerate(batch.microbatches()):
                    yield {
                        "inputs": adapters.transformers(microbatch),
                        "share": len(batch) / batch.global_valid_tokens,
                        "state": after if m == last else None,
                    }


class Model(pl.LightningModule):
    """A small language model; put your own into `logits`."""

    def __init__(self, vocab_size: int = 4096, dim: int = 64, lr: float = 1e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.embedding = torch.nn.Embedding(vocab_size, dim)
        self.feed = torch.nn.Sequential(torch.nn.Linear(dim, 4 * dim), torch.nn.GELU(), torch.nn.Linear(4 * dim, dim))

    def logits(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Shape (1, T, vocab_size); a model with attention keeps documents apart with cu_seq_lens_q."""
        hidden = self.embedding(inputs["input_ids"])
        return torch.nn.functional.linear(hidden + self.feed(hidden), self.embedding.weight)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> torch.Tensor:
        """A microbatch's part of the step's loss.

        Lightning divides by `accumulate_grad_batches` and averages gradients over ranks; both are undone here, since
        the step's loss is a sum over the labels that count, on all ranks.
        """
        labels = batch["inputs"]["shift_labels"]
        total = torch.nn.functional.cross_entropy(
            self.logits(batch["inputs"]).flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=IGNORE_INDEX
        )
        if batch["state"] is not None:
            self.trainer.datamodule.trained = batch["state"]
        return total * batch["share"] * self.trainer.world_size

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])


def last_checkpoint(folder: str) -> str | None:
    """The newest one; None at the first start."""
    found = sorted(Path(folder).glob("*.ckpt"), key=os.path.getmtime)
    return str(found[-1]) if found else None


def main(argv: Sequence[str] | None = None) -> torch.nn.Module:
    """Train to the end of the stream or `--steps`; returns the model."""
    options = parse(argv)
    pl.seed_everything(0, verbose=False)
    model = Model(vocab_size=options.vocab_size, lr=options.lr)
    keep = ModelCheckpoint(options.folder, every_n_train_steps=options.save_every, save_top_k=-1)
    trainer = pl.Trainer(
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        devices=options.devices,
        num_nodes=options.nodes,
        max_steps=options.steps,
        max_epochs=1,
        accumulate_grad_batches=options.accumulate,
        callbacks=[keep],
        logger=False,
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=StreamData(options.target, options.run), ckpt_path=last_checkpoint(options.folder))
    return model


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train with Lightning on batches from Loadmaster.")
    parser.add_argument("target", help="address of the planner, or a run spec (YAML) to load embedded")
    parser.add_argument("--run", help="name of the run")
    parser.add_argument("--folder", default="checkpoints", help="where checkpoints are kept")
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps")
    parser.add_argument("--accumulate", type=int, default=4, help="microbatches of a step on this rank")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--devices", type=int, default=1, help="of each node")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
