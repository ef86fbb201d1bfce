"""Feed the `Trainer` of Hugging Face transformers, and go on exactly where its checkpoint was taken.

    python examples/recipes/transformers_trainer.py http://127.0.0.1:8700 --run demo --folder checkpoints
    torchrun --nproc-per-node 4 examples/recipes/transformers_trainer.py ...

An optimizer step of the Trainer is a step of the run: `gradient_accumulation_steps` must be the run's microbatches
divided by the number of ranks. Started again with the same folder, it goes on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

import loadmaster
from loadmaster import adapters

STATE = "loadmaster.json"


class LoadmasterTrainer(Trainer):
    """A Trainer whose data comes from a stream, a whole step at a time.

    Batches reach `training_step` as they are, so no dataset, sampler, collator or worker is involved: what a
    DataLoader of its own would shard, shuffle and fetch ahead is planned already.
    """

    def __init__(self, *, stream: loadmaster.Stream, **options: Any) -> None:
        super().__init__(callbacks=[SaveStream(stream), *options.pop("callbacks", [])], **options)
        self.stream = stream

    def get_train_dataloader(self) -> Any:
        """Something to iterate over: `get_batch_samples` takes its batches from it."""
        return self.stream

    def get_batch_samples(
        self, epoch_iterator: Iterator[loadmaster.Batch], num_batches: int, device: torch.device
    ) -> tuple[list[dict[str, Any]], torch.Tensor | None]:
        """The microbatches of the next step, and the labels that count over all ranks and microbatches."""
        batch = next(epoch_iterator, None)
        if batch is None:
            return [], None
        if len(batch) != num_batches:
            raise ValueError(f"gradient_accumulation_steps must be {len(batch)}, this rank's part, got {num_batches}")
        inputs = [adapters.transformers(microbatch) | {"use_cache": False} for microbatch in batch.microbatches()]
        return inputs, torch.tensor(batch.global_valid_tokens, device=device)


class SaveStream(TrainerCallback):
    """Writes where the stream is into each checkpoint, last of all. It is the same for all ranks: one of them does."""

    def __init__(self, stream: loadmaster.Stream) -> None:
        self.stream = stream

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """Called when a checkpoint was written."""
        if state.is_world_process_zero:
            path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / STATE
            path.with_suffix(".part").write_text(json.dumps(self.stream.state_dict()))
            path.with_suffix(".part").replace(path)


def last_state(folder: str) -> tuple[str | None, dict[str, Any] | None]:
    """The last checkpoint that is whole, and where the stream was; nothing of both at the first start."""
    whole = max(Path(folder).glob(f"checkpoint-*/{STATE}"), key=_step_of, default=None)
    return (str(whole.parent), json.loads(whole.read_text())) if whole else (None, None)


def _step_of(state: Path) -> int:
    return int(state.parent.name.rpartition("-")[2])


def train(options: argparse.Namespace, model: torch.nn.Module, **more: Any) -> LoadmasterTrainer:
    """Train to the end of the stream or `--steps`, whichever comes first."""
    arguments = TrainingArguments(
        output_dir=options.folder,
        max_steps=options.steps,
        gradient_accumulation_steps=options.accumulate,
        save_steps=options.save_every,
        ignore_data_skip=True,  # the stream goes on by itself; the Trainer would read and drop what was trained
        learning_rate=options.lr,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        **more,
    )
    checkpoint, state = last_state(options.folder)
    with loadmaster.connect(options.target, run=options.run, resume=state) as stream:
        trainer = LoadmasterTrainer(stream=stream, model=model, args=arguments)
        trainer.train(resume_from_checkpoint=checkpoint)
    return trainer


def main(argv: Sequence[str] | None = None) -> torch.nn.Module:
    """Train a small Llama; returns it."""
    options = parse(argv)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=options.vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        attn_implementation="flash_attention_2" if torch.cuda.is_available() else "sdpa",
    )
    return train(options, LlamaForCausalLM(config)).model


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train with transformers' Trainer on batches from Loadmaster.")
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
