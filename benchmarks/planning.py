"""The balance of a step: how even, how close to what is possible, how long; beside it sequential, snake and KK.

Steps are real ones (benchmarks/steps.py): drawn, packed by best fit, what does not fit waits. Cost is that of a 12B
decoder on aligned tokens. Times are the best of a warm run, in CPU time of the one thread. The peers get the same
steps; snake and KK know no token cap, so the share of bins that they overfill stands beside their figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loadmaster_server.planning.balance import Balanced, balance, warm_up
from loadmaster_server.planning.cost import DEFAULT_COST, integer_costs

sys.path.insert(0, str(Path(__file__).parent))
from peers.balancing import karmarkar_karp, snake
from steps import ALIGN, LENGTH_SETS, Int64Array, Step, steps

PER_RANK = 8
MESHES = {64: (8192, 32_768, 131_072), 512: (8192, 32_768, 131_072), 4096: (8192,)}
TIMED = {64: (8192, 32_768), 512: (8192, 32_768), 4096: (8192,)}
GROWTH = (1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case: the worst of its steps, and the median of their best times."""

    lengths: str
    context: int
    num_ranks: int
    samples: int
    occupancy: float
    method: str
    rank: float
    rank_bound: float
    microbatch: float
    microbatch_bound: float
    ms: float
    fallbacks: int
    num_steps: int


def balance_case(lengths: str, context: int, num_ranks: int, num_steps: int, repeats: int) -> Row:
    """Balance some steps in a row."""
    found, times, taken = list[Balanced](), list[float](), list[Step]()
    for step in steps(lengths, context, num_ranks * PER_RANK, num_steps):
        cost_N = cost_of(step)
        result, ms = best_of(lambda step=step, cost_N=cost_N: run(step, cost_N, num_ranks), repeats)
        found.append(result)
        times.append(ms)
        taken.append(step)
    worst = max(found, key=lambda result: result.rank_max_over_mean / result.rank_bound)
    tallest = max(found, key=lambda result: result.microbatch_max_over_mean / result.microbatch_bound)
    return Row(
        lengths=lengths,
        context=context,
        num_ranks=num_ranks,
        samples=max(len(step.size_N) for step in taken),
        occupancy=min(step.occupancy for step in taken),
        method="+".join(sorted({result.method for result in found})),
        rank=worst.rank_max_over_mean,
        rank_bound=worst.rank_bound,
        microbatch=tallest.microbatch_max_over_mean,
        microbatch_bound=tallest.microbatch_bound,
        ms=float(np.median(times)),
        fallbacks=sum(result.method == "repaired" for result in found),
        num_steps=len(found),
    )


def cost_of(step: Step) -> Int64Array:
    """Integer cost of aligned tokens: padding is computed, too."""
    return integer_costs(DEFAULT_COST, step.size_N * ALIGN)


def run(step: Step, cost_N: Int64Array, num_ranks: int) -> Balanced:
    per_rank = step.num_bins // num_ranks
    return balance(step.size_N, cost_N, step.bin_N, num_ranks=num_ranks, per_rank=per_rank, capacity=step.capacity)


def best_of(call: Callable[[], Balanced], repeats: int) -> tuple[Balanced, float]:
    """Result and least milliseconds of CPU, of calls after a first one that is not counted."""
    result, best = call(), float("inf")
    for _ in range(repeats):
        start = time.thread_time()
        call()
        best = min(best, (time.thread_time() - start) * 1e3)
    return result, best


def print_cases(rows: list[Row]) -> None:
    head = f"{'lengths':10} {'C':>5} {'D':>5} {'samples':>8} {'occup.':>7} {'rank':>7} {'bound':>7} "
    print(head + f"{'microb.':>8} {'/bound':>7} {'ms':>7}  method")
    for row in rows:
        print(
            f"{row.lengths:10} {row.context // 1024:4}k {row.num_ranks:5} {row.samples:8} {row.occupancy:7.4f} "
            f"{row.rank:7.4f} {row.rank_bound:7.4f} {row.microbatch:8.4f} {row.microbatch / row.microbatch_bound:7.4f} "
            f"{row.ms:7.2f}  {row.method}"
        )


def print_peers(num_ranks: int, context: int) -> None:
    """The same step by every way: evenness, bins over capacity, time."""
    print(f"\nbeside others, D={num_ranks} M={PER_RANK} C={context // 1024}k, one step each")
    print(f"{'lengths':10} {'method':14} {'rank':>7} {'microb./bound':>14} {'over C':>7} {'ms':>9}")
    for lengths in LENGTH_SETS:
        *_, step = steps(lengths, context, num_ranks * PER_RANK, 2)
        cost_N = cost_of(step)
        ours, ms = best_of(lambda step=step, cost_N=cost_N: run(step, cost_N, num_ranks), 3)
        print_way(lengths, "loadmaster", ours.bin_N, step, cost_N, ours.microbatch_bound, ms)
        ways = {
            "sequential": lambda step=step: step.bin_N,
            "snake": lambda cost_N=cost_N: snake(cost_N, num_ranks, PER_RANK),
            "karmarkar-karp": lambda cost_N=cost_N: karmarkar_karp(cost_N, num_ranks, PER_RANK),
        }
        for name, call in ways.items():
            start = time.thread_time()
            bin_N = call()
            print_way(
                lengths, name, bin_N, step, cost_N, ours.microbatch_bound, (time.thread_time() - start) * 1e3
            )  # fmt: skip


def print_way(
    lengths: str, name: str, bin_N: Int64Array, step: Step, cost_N: Int64Array, bound: float, ms: float
) -> None:  # fmt: skip
    cost_B = np.bincount(bin_N, cost_N, step.num_bins)
    used_B = np.bincount(bin_N, step.size_N, step.num_bins)
    cost_D = cost_B.reshape(-1, PER_RANK).sum(axis=1)
    over = float((used_B > step.capacity).mean())
    rank, microbatch = cost_D.max() / cost_D.mean(), cost_B.max() / cost_B.mean() / bound
    print(f"{lengths:10} {name:14} {rank:7.4f} {microbatch:14.4f} {over:7.1%} {ms:9.2f}")


def print_growth(most: int) -> None:
    """Time by number of samples: lognormal, 32k, 22 samples a bin."""
    print("\ngrowth, lognormal, C=32k")
    for samples in (count for count in GROWTH if count <= most):
        num_ranks = max(1, samples // 22 // PER_RANK)
        *_, step = steps("lognormal", 32_768, num_ranks * PER_RANK, 2)
        cost_N = cost_of(step)
        _, ms = best_of(lambda step=step, cost_N=cost_N, num_ranks=num_ranks: run(step, cost_N, num_ranks), 3)
        print(
            f"{len(step.size_N):9} samples, D={num_ranks:5}: {ms:8.2f} ms, {ms / len(step.size_N) * 1e6:5.0f} ns each"
        )


def summary(rows: list[Row]) -> dict[str, float]:
    """Figures of the worst case: rank and microbatch at 8k and 32k, times by mesh, and the
    share of plans for which neither packed bins nor LPT would do (packed bins repaired)."""
    short = [row for row in rows if row.context <= 32_768]
    times = {
        f"ms_d{num_ranks}": max(row.ms for row in rows if row.num_ranks == num_ranks and row.context in contexts)
        for num_ranks, contexts in TIMED.items()
    }
    return times | {
        "rank_max_over_mean": max(row.rank for row in short),
        "rank_over_bound_128k": max((row.rank / row.rank_bound for row in rows if row.context > 32_768), default=1.0),
        "microbatch_over_bound": max(row.microbatch / row.microbatch_bound for row in rows),
        "fallback_fraction": sum(row.fallbacks for row in rows) / sum(row.num_steps for row in rows),
        "balance_occupancy": min(row.occupancy for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps, 128k on 64 ranks only, up to 100k samples")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object at the end")
    options = parser.parse_args()
    start = time.perf_counter()
    warm_up()
    print(f"compiled or loaded from the cache in {time.perf_counter() - start:.1f} s")
    rows = [
        balance_case(lengths, context, num_ranks, 2 if options.quick else 6, 3 if options.quick else 7)
        for num_ranks, contexts in MESHES.items()
        for context in contexts
        if not (options.quick and context > 32_768 and num_ranks > 64)
        for lengths in LENGTH_SETS
    ]
    print_cases(rows)
    print_peers(64, 8192 if options.quick else 32_768)
    print_growth(100_000 if options.quick else 1_000_000)
    figures = summary(rows)
    print("\n" + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
