"""Train the smallest language model there is, with NumPy alone: what the trainer of docker-compose.yml runs.

    python examples/train_numpy.py http://127.0.0.1:8400 --run-name demo --checkpoint model.npz

One rank, a bigram model of low rank: the next token from the last one. It needs no more than the client, and its loss
falls. Killed and started again it goes on from its checkpoint; examples/train_gpt.py is the loop to copy.
"""

# T = tokens with a label, V = vocabulary, E = width

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import loadmaster

IGNORE_INDEX = -100
Floats = npt.NDArray[np.float32]
Parameters = dict[str, Floats]


class Bigram:
    """Logits of the next token: inputs_VE[token] @ outputs_VE.T + bias_V; trained with Adagrad."""

    def __init__(self, vocab_size: int, width: int) -> None:
        rng = np.random.default_rng(0)
        shape = (vocab_size, width)
        self.parameters: Parameters = {
            "inputs_VE": rng.normal(0.0, 0.1, shape).astype(np.float32),
            "outputs_VE": rng.normal(0.0, 0.1, shape).astype(np.float32),
            "bias_V": np.zeros(vocab_size, np.float32),
        }
        self.squares: Parameters = {name: np.full_like(value, 1e-8) for name, value in self.parameters.items()}

    def gradients(self, tokens_T: npt.NDArray[np.int32], labels_T: npt.NDArray[np.int32]) -> tuple[float, Parameters]:
        """The summed loss of one microbatch, and what it asks of each parameter."""
        inputs_VE, outputs_VE = self.parameters["inputs_VE"], self.parameters["outputs_VE"]
        hidden_TE = inputs_VE[tokens_T]
        logits_TV = hidden_TE @ outputs_VE.T + self.parameters["bias_V"]
        logits_TV -= logits_TV.max(axis=1, keepdims=True)
        odds_TV = np.exp(logits_TV)
        sums_T = odds_TV.sum(axis=1)
        rows_T = np.arange(len(labels_T))
        loss = float((np.log(sums_T) - logits_TV[rows_T, labels_T]).sum())
        odds_TV /= sums_T[:, None]
        odds_TV[rows_T, labels_T] -= 1.0
        to_inputs_VE = np.zeros_like(inputs_VE)
        np.add.at(to_inputs_VE, tokens_T, odds_TV @ outputs_VE)
        return loss, {"inputs_VE": to_inputs_VE, "outputs_VE": odds_TV.T @ hidden_TE, "bias_V": odds_TV.sum(axis=0)}

    def update(self, gradients: Parameters, lr: float) -> None:
        """One step of Adagrad."""
        for name, gradient in gradients.items():
            self.squares[name] += gradient**2
            self.parameters[name] -= lr * gradient / np.sqrt(self.squares[name])


def train_step(model: Bigram, batch: Any, lr: float) -> float:
    """One optimizer step; the loss is a mean over the valid tokens of all microbatches."""
    total, sums = 0.0, {name: np.zeros_like(value) for name, value in model.parameters.items()}
    for microbatch in batch.microbatches():
        valid_T = microbatch.labels != IGNORE_INDEX
        loss, gradients = model.gradients(microbatch.tokens[valid_T], microbatch.labels[valid_T])
        total += loss
        for name, gradient in gradients.items():
            sums[name] += gradient
    count = max(batch.global_valid_tokens, 1)
    model.update({name: value / count for name, value in sums.items()}, lr)
    return total / count


def save(path: Path, model: Bigram, state: dict[str, Any]) -> None:
    """Write a checkpoint, whole or not at all; the data's position is in it."""
    part = path.with_name(path.name + ".part")
    squares = {f"{name}_squares": value for name, value in model.squares.items()}
    with part.open("wb") as file:
        np.savez(file, stream=np.array(json.dumps(state)), **model.parameters, **squares)
    part.replace(path)


def restore(path: Path, model: Bigram) -> dict[str, Any]:
    """Load a checkpoint; returns the data's position for `connect`."""
    with np.load(path) as file:
        for name in model.parameters:
            model.parameters[name], model.squares[name] = file[name], file[f"{name}_squares"]
        state: dict[str, Any] = json.loads(str(file["stream"]))
    return state


def main(argv: Sequence[str] | None = None) -> int:
    """Train to the end of the stream."""
    options = parse(argv)
    model, resume = Bigram(options.vocab_size, options.width), None
    if options.checkpoint and options.checkpoint.exists():
        resume = restore(options.checkpoint, model)
        print(f"going on at step {resume['step']}", flush=True)
    with loadmaster.connect(options.url, run=options.run_name, resume=resume, framework="numpy") as stream:
        start_s = time.monotonic()
        for batch in stream:
            loss = train_step(model, batch, options.lr)
            step_s, start_s = time.monotonic() - start_s, time.monotonic()
            print(
                f"step {batch.step:4d}  loss {loss:6.3f}  valid tokens {batch.global_valid_tokens:5d}"
                f"  {step_s * 1000:5.0f} ms, of which {stream.stats.wait_ms:.0f} waiting for data",
                flush=True,
            )
            if options.checkpoint:
                save(options.checkpoint, model, stream.state_dict())
    print("done", flush=True)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a bigram model with batches from Loadmaster.")
    parser.add_argument("url", help="address of the planner, or a run spec (YAML) to load embedded")
    parser.add_argument("--run-name", help="name of the run")
    parser.add_argument("--checkpoint", type=Path, help="file to save to after each step, and to go on from")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.2)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
