"""The demo's GPT on real CPU ranks: llm_balance against sequential plans, the same samples in every step.

Each rank is a process (torch.distributed, gloo) that holds two equal models. In every step it trains the one on the
balanced plan and the other on the sequential one, in turn, so that a busy machine is as busy for both. A step's time
is that of the slowest rank. Its *work* is counted in CPU seconds of each rank's thread up to the all-reduce: with fewer
cores than ranks the wall time follows the sum over the ranks, while one core a rank would wait for the slowest.
The losses must agree to float tolerance: the same documents in other places give the same sum.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml

import loadmaster
from loadmaster_flight.spec import load_run_spec

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from train_gpt import GPT, GPTConfig, loss_sum, sum_over_ranks

EXAMPLES = Path(__file__).parents[1] / "examples"

SEQ_LEN, PER_RANK = 2048, 2
STRATEGIES = ("llm_balance", "sequential")
CONFIG = GPTConfig(max_len=SEQ_LEN)
LOSS_TOLERANCE = 1e-3
TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of one strategy: loss, wall seconds, CPU seconds of every rank, samples."""

    loss: float
    wall_s: float
    cpu_s: list[float]
    samples: list[str]


def write_spec(spec_path: Path, strategy: str, ranks: int, folder: Path) -> Path:
    """The demo's run with longer microbatches and the sizes of its own GPT, which say what a document costs."""
    spec = load_run_spec(spec_path)
    backbone = {
        "hidden": CONFIG.dim, "layers": CONFIG.num_layers, "ffn": 4 * CONFIG.dim, "vocab": CONFIG.vocab_size,
        "swiglu": False,
    }  # fmt: skip
    batch = {"seq_len": SEQ_LEN, "microbatches": ranks * PER_RANK, "align": spec.batch.align}
    changes = {"strategy": strategy, "batch": batch, "model": {"backbone": backbone}, "until": {}}
    path = folder / f"{strategy}.yaml"
    path.write_text(yaml.safe_dump(spec.to_tree() | changes, sort_keys=False))
    return path


class Trained:
    """A model and the stream that feeds it, on one rank."""

    def __init__(self, strategy: str, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.model = GPT(CONFIG)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.lr, betas=(0.9, 0.95))
        self._stream = loadmaster.connect(str(options.folder / f"{strategy}.yaml"), prefetch=1, timeout_s=TIMEOUT_S)
        self._batches = iter(self._stream)

    def step(self) -> Step:
        """Train one step; all ranks together. The batch is there before the clock starts."""
        batch = next(self._batches)
        dist.barrier()
        start_s, start_cpu_s = time.monotonic(), time.thread_time()
        self.optimizer.zero_grad(set_to_none=False)
        total = torch.zeros(())
        for microbatch in batch.microbatches():
            loss = loss_sum(self.model, microbatch) / batch.global_valid_tokens
            loss.backward()
            total += loss.detach()
        cpu_s = time.thread_time() - start_cpu_s
        sum_over_ranks([p.grad for p in self.model.parameters() if p.grad is not None])
        self.optimizer.step()
        mean_loss = sum_over_ranks([total])
        wall_s = time.monotonic() - start_s
        samples = sorted(sample for part in gathered(batch.sample_ids) for sample in part)
        return Step(loss=mean_loss, wall_s=wall_s, cpu_s=gathered(cpu_s), samples=samples)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


def gathered(value: Any) -> list[Any]:
    """The value of every rank."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def train(options: argparse.Namespace) -> None:
    """What every rank does; rank 0 prints a JSON line a step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trained = {strategy: Trained(strategy, options) for strategy in STRATEGIES}
    for number in range(options.steps):
        order = STRATEGIES if number % 2 else STRATEGIES[::-1]
        steps = {strategy: trained[strategy].step() for strategy in order}
        if rank == 0:
            line = {name: [s.loss, s.wall_s, s.cpu_s] for name, s in steps.items()}
            line["is_same"] = steps[STRATEGIES[0]].samples == steps[STRATEGIES[1]].samples
            print(json.dumps(line), flush=True)
    for one in trained.values():
        one.close()
    dist.destroy_process_group()


def steps_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Start the ranks; what rank 0 tells of each step.

    Raises:
        RuntimeError: A rank failed; carries the end of what it said.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        world = {
            "WORLD_SIZE": str(options.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(probe.getsockname()[1]),
        }
    command = [
        sys.executable,
        str(Path(__file__).absolute()),
        "--steps",
        str(options.steps),
        "--ranks",
        str(options.ranks),
    ]
    command += ["--lr", str(options.lr), "--folder", str(options.folder)]
    ranks = [
        subprocess.Popen(
            command,
            env={**os.environ, **world, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
            cwd=options.folder,
        )
        for rank in range(options.ranks)
    ]
    try:
        first = ranks[0].stdout
        assert first is not None
        yield from (json.loads(line) for line in first)
        codes = [process.wait(TIMEOUT_S) for process in ranks]
        if any(codes):
            raise RuntimeError(f"ranks must end with 0, got {codes}")
    finally:
        for process in ranks:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def compare(options: argparse.Namespace) -> dict[str, float]:
    """Train, print the curves side by side and the medians."""
    print(f"{options.ranks} ranks, {PER_RANK} microbatches of {SEQ_LEN} tokens each, {os.cpu_count()} cores")
    print(f"{'':>4}  {'loss':>19}  {'difference':>10}  {'step ms':>15}  {'slowest rank, CPU ms':>20}  {'max/mean':>11}")
    print(f"{'step':>4}  {'balanced':>9} {'sequential':>9}  {'':>10} {'balanced':>8} {'sequen.':>7}")
    lines = []
    for number, line in enumerate(steps_of(options)):
        lines.append(line)
        print(_row(number, line), flush=True)
    return summary(lines[1:] or lines)


def _row(number: int, line: dict[str, Any]) -> str:
    (ours, ours_s, ours_cpu), (theirs, theirs_s, theirs_cpu) = (line[name] for name in STRATEGIES)
    even = [f"{max(cpu) * len(cpu) / sum(cpu):.2f}" for cpu in (ours_cpu, theirs_cpu)]
    return (
        f"{number:>4}  {ours:>9.5f} {theirs:>9.5f}  {abs(ours - theirs):>10.1e}  {ours_s * 1e3:>7.0f} "
        f"{theirs_s * 1e3:>7.0f}  {max(ours_cpu) * 1e3:>9.0f} {max(theirs_cpu) * 1e3:>10.0f}  {even[0]:>5} {even[1]:>5}"
    )


def summary(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Medians of the steps after the first, and whether the losses agree."""
    ours, theirs = ([line[name] for line in lines] for name in STRATEGIES)

    def ratio(value: Any) -> float:
        return statistics.median(value(b) / value(a) for a, b in zip(ours, theirs, strict=True))

    figures = {
        "speedup_slowest_rank": ratio(lambda step: max(step[2])),
        "speedup_wall": ratio(lambda step: step[1]),
        "rank_max_over_mean": statistics.median(max(s[2]) * len(s[2]) / sum(s[2]) for s in ours),
        "rank_max_over_mean_sequential": statistics.median(max(s[2]) * len(s[2]) / sum(s[2]) for s in theirs),
        "loss_difference": max(abs(a[0] - b[0]) / abs(b[0]) for a, b in zip(ours, theirs, strict=True)),
        "same_samples": float(all(line["is_same"] for line in lines)),
    }
    agree = "agree" if figures["loss_difference"] <= LOSS_TOLERANCE else "DIFFER"
    print(f"samples of every step {'the same' if figures['same_samples'] else 'DIFFER'}; losses {agree}")
    for name, value in figures.items():
        print(f"  {name:<30} {value:.4g}")
    return {name: float(f"{value:.4g}") for name, value in figures.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """A rank where RANK is set, else the whole comparison; returns the exit code."""
    options = parse(argv)
    if "RANK" in os.environ:
        train(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="loadmaster-balance-") as folder:
        options.folder = Path(folder)
        for strategy in STRATEGIES:
            write_spec(options.spec, strategy, options.ranks, options.folder)
        figures = compare(options)
    if options.json:
        print(json.dumps(figures))
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="6 steps")
    parser.add_argument("--steps", type=int, help="steps (default 30)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--spec", type=Path, default=EXAMPLES / "demo.yaml")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of the specs, for the ranks
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    options = parser.parse_args(argv)
    options.steps = options.steps or (6 if options.quick else 30)
    return options


if __name__ == "__main__":
    sys.exit(main())
