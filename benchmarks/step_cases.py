"""Simulated steps: what a loader reads, where it puts it, and where Loadmaster's planner puts the same samples.

# N = samples, K = images, D = dp ranks, M = microbatches of a rank, S = sources
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from image_samples import FOUR_SOURCES, Samples, Source, mixed

from loadmaster_server.planning.balance import balance
from loadmaster_server.planning.balancing import lightest_first
from loadmaster_server.planning.cost import CostModel, integer_costs, transformer_cost, vit_cost
from loadmaster_server.planning.pack import best_fit
from loadmaster_server.planning.simulation import (
    LEFT,
    Mesh,
    cost_grid,
    encoder_time,
    finish_times,
    fixed_count,
    images_at_home,
    next_fit,
)

BACKBONE = transformer_cost(5120, 36, 13_824, 128_256)
"""The shape of a 12B Llama."""
ENCODER = vit_cost(2048, 40)
"""A vision transformer of 2B."""
ALIGN = 16
SHARES = (0.40, 0.40, 0.15, 0.05)
"""Of text, captioned, interleaved and video samples in the mixture of all ranks together."""
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A mesh and a batch. encoder: dp, each device encodes whole images; tp, a rank's devices share each image."""

    name: str
    mesh: Mesh
    per_rank: int
    seq_len: int
    encoder: str = "tp"
    backbone: CostModel = BACKBONE

    @property
    def num_bins(self) -> int:
        return self.mesh.dp * self.per_rank

    @property
    def devices_per_rank(self) -> int:
        return self.mesh.world_size // self.mesh.dp

    @property
    def encoders_per_rank(self) -> int:
        return self.devices_per_rank if self.encoder == "dp" else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Samples of one step and the microbatch (rank * M + m) that the loader which read them puts each into."""

    samples: Samples
    bin_N: Int64Array


def read_by_budget(case: Case, sources: Sequence[Source], rng: np.random.Generator) -> Read:
    """Every rank fills its M microbatches by next fit, to the token."""
    return _read(case, sources, lambda source: _by_budget(case, source, rng))


def _by_budget(case: Case, source: Source, rng: np.random.Generator) -> Read:
    wanted = 2 * case.per_rank
    while True:
        samples = source(rng, wanted, case.seq_len)
        bin_N = next_fit(_sizes(samples), case.per_rank, case.seq_len // ALIGN)
        if (bin_N == LEFT).any():
            return Read(samples=samples.take(bin_N != LEFT), bin_N=bin_N[bin_N != LEFT])
        wanted *= 2


def read_by_count(case: Case, sources: Sequence[Source], rng: np.random.Generator, *, count: int) -> Read:
    """Every rank puts `count` samples into each of its microbatches, however long they are.

    One fewer, and again, where a step has so many tokens that no placement keeps every microbatch to seq_len.
    """

    def read(source: Source) -> Read:
        samples = source(rng, count * case.per_rank, case.seq_len)
        return Read(samples=samples, bin_N=fixed_count(len(samples), case.per_rank))

    found = _read(case, sources, read)
    packed_N = _packed(_sizes(found.samples), case.num_bins, case.seq_len // ALIGN)
    return found if (packed_N >= 0).all() else read_by_count(case, sources, rng, count=count - 1)


def _read(case: Case, sources: Sequence[Source], read: Callable[[Source], Read]) -> Read:
    parts = [read(source) for source in sources]
    return Read(
        samples=Samples.concat([part.samples for part in parts]),
        bin_N=np.concatenate([part.bin_N + rank * case.per_rank for rank, part in enumerate(parts)]),
    )


def count_for(case: Case, sources: Sequence[Source], rng: np.random.Generator, *, fill: float) -> int:
    """Samples a microbatch at which the mean one holds `fill` of seq_len; at least 1."""
    some = [source(rng, 64, case.seq_len) for source in sources]
    mean = float(np.mean([_sizes(samples).mean() * ALIGN for samples in some]))
    return max(1, int(fill * case.seq_len / mean))


def skewed_sources(num_ranks: int, concentration: float, rng: np.random.Generator) -> list[Source]:
    """A mix of the four sources for every rank, of a Dirichlet distribution around SHARES: 0.5 is strong skew."""
    alpha_S = concentration * len(SHARES) * np.array(SHARES)
    return [mixed(FOUR_SOURCES, shares_S) for shares_S in rng.dirichlet(alpha_S, num_ranks)]


def time_of_loader(case: Case, read: Read) -> float:
    """A step as it was read: every sample with its images on the rank that read it."""
    rank_K = read.bin_N[read.samples.node_K] // case.per_rank
    consumer_K = images_at_home(rank_K, case.encoders_per_rank)
    return _encoding(case, read.samples, consumer_K) + _backbone_time(case, read.samples, read.bin_N)


def times_of_plan(case: Case, read: Read) -> tuple[float, float]:
    """The same samples balanced by the backbone's cost, images staying with their samples; and as vlm_hybrid plans
    them: documents by backbone cost, images by encoder cost."""
    bin_N, samples = planned_bins(case, read), read.samples
    at_home_K = images_at_home(bin_N[samples.node_K] // case.per_rank, case.encoders_per_rank)
    spread_K = lightest_first(_image_costs(samples), np.ones(case.mesh.dp * case.encoders_per_rank))
    backbone = _backbone_time(case, samples, bin_N)
    return _encoding(case, samples, at_home_K) + backbone, _encoding(case, samples, spread_K) + backbone


def planned_bins(case: Case, read: Read, *, pp: int | None = None) -> Int64Array:
    """The planner's balance of these samples: the kernel that serves real steps. `pp` 1 leaves the pipeline out."""
    size_N, capacity = _sizes(read.samples), case.seq_len // ALIGN
    packed_N = read.bin_N
    if np.bincount(packed_N, size_N, case.num_bins).max() > capacity:
        packed_N = _packed(size_N, case.num_bins, capacity)
    return balance(
        size_N,
        integer_costs(case.backbone, read.samples.tokens_N),
        packed_N,
        num_ranks=case.mesh.dp,
        per_rank=case.per_rank,
        capacity=capacity,
        pp=case.mesh.pp if pp is None else pp,
    ).bin_N


def _packed(size_N: Int64Array, num_bins: int, capacity: int) -> Int64Array:
    """Best fit decreasing, int64 (N,); -1 where a sample finds no room."""
    order_N = np.argsort(-size_N, kind="stable")
    bin_N = np.empty(len(size_N), np.int64)
    bin_N[order_N] = best_fit(size_N[order_N].tolist(), num_bins, capacity)
    return bin_N


def _sizes(samples: Samples) -> Int64Array:
    return np.asarray(-(-samples.tokens_N // ALIGN), np.int64)


def _image_costs(samples: Samples) -> Int64Array:
    return integer_costs(ENCODER, samples.patches_K)


def _encoding(case: Case, samples: Samples, consumer_K: Int64Array) -> float:
    num = case.mesh.dp * case.encoders_per_rank
    time = encoder_time(ENCODER(samples.patches_K), consumer_K, num)
    return time * case.encoders_per_rank / case.devices_per_rank


def backbone_grid(case: Case, samples: Samples, bin_N: Int64Array) -> npt.NDArray[np.float64]:
    """Cost of each microbatch, float64 (D, M)."""
    return cost_grid(case.backbone(samples.tokens_N), bin_N, case.mesh.dp, case.per_rank)


def _backbone_time(case: Case, samples: Samples, bin_N: Int64Array) -> float:
    time = float(finish_times(backbone_grid(case, samples, bin_N), case.mesh.pp).max())
    return time / (case.mesh.cp * case.mesh.tp)


def useful_time(case: Case, samples: Samples) -> float:
    """What the step would take if every device worked all the time."""
    total = float(case.backbone(samples.tokens_N).sum() + ENCODER(samples.patches_K).sum())
    return total / case.mesh.world_size
