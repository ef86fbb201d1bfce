"""Step times with and without balance: simulated (exact 1F1B over FLOPs), nothing is measured on a device.

What is real: the planner's balance, called as in a run, on the samples that each loader read; fixed seeds. What is a
model: FLOPs of a 12B Llama and a 2B vision transformer, the pipeline, made-up lengths. Communication, kernels that are
slow on short documents, moving images between ranks and memory (except tokens of a microbatch) are left out.

Every loader is compared on the samples that it read itself: the planner places exactly those.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loadmaster_server.planning.balance import warm_up
from loadmaster_server.planning.simulation import (
    Lengths,
    Mesh,
    bubble_limit,
    microbatch_floor,
    spread_context,
    step_time,
)

sys.path.insert(0, str(Path(__file__).parent))
from image_samples import FOUR_SOURCES, LONG_TAIL, MILD, VIDEO_LIKE, Samples, Source, mixed
from step_cases import (
    ALIGN,
    BACKBONE,
    SHARES,
    Case,
    Read,
    backbone_grid,
    count_for,
    planned_bins,
    read_by_budget,
    read_by_count,
    skewed_sources,
    time_of_loader,
    times_of_plan,
    useful_time,
)

COUNT_FILL = 0.9
"""Mean fill of the microbatches of a loader that counts samples."""
Reader = Callable[[np.random.Generator], Read]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Summed times of several steps in FLOPs of a device. overfull: the loader's fullest microbatch over seq_len."""

    loader: float
    backbone_plan: float
    plan: float
    useful: float
    overfull: float

    @property
    def speedup(self) -> float:
        return self.loader / self.plan


def compare(case: Case, read: Reader, *, steps: int, seed: int = 0) -> Result:
    """The loader's steps and the planner's, of the same samples."""
    reads = [read(np.random.default_rng([seed, step])) for step in range(steps)]
    planned = [times_of_plan(case, r) for r in reads]
    return Result(
        loader=sum(time_of_loader(case, r) for r in reads),
        backbone_plan=sum(backbone for backbone, _ in planned),
        plan=sum(both for _, both in planned),
        useful=sum(useful_time(case, r.samples) for r in reads),
        overfull=max(float(np.bincount(r.bin_N, r.samples.tokens_N).max()) / case.seq_len for r in reads),
    )


def by_budget(case: Case, sources: Sequence[Source]) -> Reader:
    return lambda rng: read_by_budget(case, sources, rng)


def by_count(case: Case, sources: Sequence[Source]) -> Reader:
    count = count_for(case, sources, np.random.default_rng(7), fill=COUNT_FILL)
    return lambda rng: read_by_count(case, sources, rng, count=count)


# headlines


def headlines(steps: int) -> Iterator[tuple[str, str, float]]:
    """JSON key, what is compared, and the factor."""
    case = Case(name="", mesh=Mesh(dp=64, pp=4, tp=4), per_rank=8, seq_len=8192, encoder="tp")
    found = compare(case, by_budget(case, [LONG_TAIL] * 64), steps=steps)
    yield "speedup_token_budget", "next-fit token budget; VLM long tail, D=64 M=8 PP=4 TP=4, 8k, enc=tp", found.speedup
    case = Case(name="", mesh=Mesh(dp=288), per_rank=8, seq_len=16_384, encoder="tp")
    sources = skewed_sources(288, 0.5, np.random.default_rng(3))
    found = compare(case, by_count(case, sources), steps=steps)
    text = "fixed counts, each rank its own mix (Dirichlet 0.5); VLM four sources, D=288 M=8 PP=1, 16k"
    yield "speedup_skewed", f"{text} (its fullest microbatch: {found.overfull:.1f} x C)", found.speedup
    factors = paper_factors(max(2 * steps, 4))
    text = f"{PAPER_TEXT}; {len(factors)} draws of the mixes, {min(factors):.2f} to {max(factors):.2f}"
    yield "speedup_paper_case", text, statistics.fmean(factors)


PAPER_TEXT = (
    "fixed counts, ranks' mixes Dirichlet 2; 12B + ViT-2B at PP9 DP8 CP2 TP4, M=16, 32k, enc=tp (published 2.34)"
)


def paper_factors(steps: int) -> list[float]:
    """A factor a step, each with mixes of its own for the eight ranks: eight are few, one draw says little."""
    case = Case(name="", mesh=Mesh(dp=8, pp=9, cp=2, tp=4), per_rank=16, seq_len=32_768, encoder="tp")
    factors = []
    for step in range(steps):
        sources = skewed_sources(8, 2.0, np.random.default_rng([11, step]))
        factors.append(compare(case, by_count(case, sources), steps=1, seed=step).speedup)
    return factors


# tables


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource:
    """Documents of a stated distribution, cut to the longest."""

    lengths: Lengths

    def __call__(self, rng: np.random.Generator, num: int, longest: int) -> Samples:
        empty = np.zeros(0, np.int64)
        return Samples(tokens_N=np.minimum(self.lengths(rng, num), longest), node_K=empty, patches_K=empty)


def _text(name: str) -> TextSource:
    return TextSource(lengths=Lengths.parse(name))


MIX4 = mixed(
    [_text("lognormal:600,1.1"), _text("lognormal:900,1.3"), _text("lognormal:9000,1.2"), _text("pareto:1.1,4000")],
    [0.60, 0.20, 0.15, 0.05],
)
"""Web, code, books and long documents, shares in samples."""
TEXTS = {"mix4": MIX4, "lognormal": _text("lognormal"), "pareto": _text("pareto"), "bimodal": _text("bimodal")}


def llm_rows(steps: int, *, is_quick: bool) -> Iterator[list[str]]:
    """Efficiencies: naive, token budget, balance without and with the pipeline, limit; speed-ups of the last."""
    for name in ("mix4",) if is_quick else TEXTS:
        for seq_len in (8192, 32_768) if is_quick else (8192, 32_768, 131_072):
            for pp in (1, 4):
                case = Case(name=name, mesh=Mesh(dp=64, pp=pp), per_rank=8, seq_len=seq_len)
                yield _llm_row(case, [TEXTS[name]] * 64, steps)


def _llm_row(case: Case, sources: Sequence[Source], steps: int) -> list[str]:
    count = compare(case, by_count(case, sources), steps=steps)
    budget = compare(case, by_budget(case, sources), steps=steps)
    plain = plain_time(case, by_budget(case, sources), steps=steps)
    limit = bubble_limit(case.mesh.pp, case.per_rank)
    efficiencies = [count.useful / count.loader, budget.useful / budget.loader, budget.useful / plain,
                    budget.useful / budget.plan, limit]  # fmt: skip
    return [
        case.name, f"{case.seq_len // 1024}k", str(case.mesh.pp), *(f"{value:.3f}" for value in efficiencies),
        f"{count.speedup:.2f}", f"{budget.speedup:.2f}",
    ]  # fmt: skip


def plain_time(case: Case, read: Reader, *, steps: int) -> float:
    """Balanced as if there were no pipeline."""
    total = 0.0
    for step in range(steps):
        found = read(np.random.default_rng([0, step]))
        grid_DM = backbone_grid(case, found.samples, planned_bins(case, found, pp=1))
        total += step_time(grid_DM, case.mesh.pp) / (case.mesh.cp * case.mesh.tp)
    return total


def vlm_rows(steps: int, *, is_quick: bool) -> Iterator[list[str]]:
    """Speed-ups over the two loaders, for the backbone's balance alone and for both."""
    kinds = {"mild": MILD, "long tail": LONG_TAIL, "video": VIDEO_LIKE, "four sources": mixed(FOUR_SOURCES, SHARES)}
    for name in ("long tail", "four sources") if is_quick else kinds:
        source = kinds[name]
        for seq_len in (8192,) if is_quick else (8192, 32_768, 131_072):
            for pp in (1, 4):
                for encoder in ("tp", "dp"):
                    mesh = Mesh(dp=64, pp=pp, tp=4)
                    case = Case(name=name, mesh=mesh, per_rank=8, seq_len=seq_len, encoder=encoder)
                    yield _vlm_row(case, [source] * 64, steps)


def _vlm_row(case: Case, sources: Sequence[Source], steps: int) -> list[str]:
    count = compare(case, by_count(case, sources), steps=steps)
    budget = compare(case, by_budget(case, sources), steps=steps)
    factors = [count.loader / count.backbone_plan, count.speedup, budget.loader / budget.backbone_plan, budget.speedup]
    place = [case.name, f"{case.seq_len // 1024}k", str(case.mesh.pp), case.encoder]
    return [*place, *(f"{factor:.2f}" for factor in factors)]


# a context-parallel size for every microbatch


def spreading_rows(steps: int) -> Iterator[list[str]]:
    """The same documents on the same devices: every document on 4 ranks, or each on as many as it needs."""
    ranks, fixed, largest, per_rank, capacity = 64, 4, 32, 8, 32_768
    for name in ("lognormal", "pareto"):
        for pp in (1, 4):
            figures = [
                _spread_step(TEXTS[name], ranks, fixed, largest, per_rank, capacity, pp, i) for i in range(steps)
            ]
            mean = np.mean(figures, axis=0)
            yield [name, str(pp), *(f"{value:.3f}" for value in mean), f"{mean[2] and mean[5] / mean[2]:.2f}"]


def _spread_step(
    source: Source, ranks: int, fixed: int, largest: int, per_rank: int, capacity: int, pp: int, step: int
) -> list[float]:  # fmt: skip
    """Floor, microbatch max/mean and efficiency, fixed and spread."""
    room, rng = ranks * per_rank * capacity, np.random.default_rng([5, step])
    tokens_N = source(rng, room // 700, fixed * capacity).tokens_N
    tokens_N = tokens_N[np.cumsum(tokens_N) <= 0.93 * room]
    size_N, cost_N = np.asarray(-(-tokens_N // (ALIGN * fixed)) * ALIGN * fixed), BACKBONE(tokens_N)
    figures: list[float] = []
    for least, most in ((fixed, fixed), (1, largest)):
        spread = spread_context(
            size_N, cost_N, num_ranks=ranks, per_rank=per_rank, capacity=capacity, largest=most, smallest=least
        )
        if (spread.slot_N < 0).any():
            raise ValueError(f"{(spread.slot_N < 0).sum()} documents found no room")
        time = step_time(spread.cost_DM, pp, spread_DM=spread.spread_DM)
        floor = microbatch_floor(cost_N, ranks * per_rank, most)
        evenness = spread.cost_DM.max() / spread.cost_DM.mean()
        figures += [floor, float(evenness), float(spread.cost_DM.sum()) / ranks / pp / time]
    return figures


# printing


def show(title: str, columns: Sequence[str], rows: Iterator[list[str]]) -> None:
    """Print a table row by row as they come."""
    print(f"\n{title}", flush=True)
    widths = [max(len(column), 7) for column in columns]
    widths[0] = max(widths[0], 13)
    print("  ".join(f"{column:>{width}}" for column, width in zip(columns, widths, strict=True)))
    for row in rows:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; returns the exit code."""
    options = parse(argv)
    warm_up()
    started = time.monotonic()
    steps = options.steps or (1 if options.quick else 5)
    print(__doc__.split("\n")[0])
    figures = {}
    print(f"\nfactor by which a step is shorter, {steps} steps")
    for key, text, factor in headlines(steps):
        figures[key] = round(factor, 3)
        print(f"  {factor:5.2f} x  {text}", flush=True)
    llm = ["lengths", "C", "PP", "naive", "budget", "two-level", "planned", "limit", "/ naive", "/ budget"]
    show("LLM, D=64 M=8: share of device time that is useful", llm, llm_rows(steps, is_quick=options.quick))
    vlm = ["data", "C", "PP", "encoder", "naive: bb", "both", "budget: bb", "both"]
    title = "VLM, D=64 M=8 TP=4: factor over each loader, backbone balanced alone (bb) and images as well (both)"
    show(title, vlm, vlm_rows(steps, is_quick=options.quick))
    spread = ["lengths", "PP", "floor, cp 4", "mb max/mean", "useful", "floor, own", "mb max/mean", "useful", "faster"]
    title = "own cp for each microbatch: 64 ranks of 32k, M=8, documents up to 128k; cp 4 for all, or 1 to 32 as needed"
    show(title, spread, spreading_rows(steps))
    print(f"\n{time.monotonic() - started:.0f} s")
    if options.json:
        print(json.dumps(figures))
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one step a case, fewer cases; within a minute")
    parser.add_argument("--steps", type=int, help="steps of each case")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
