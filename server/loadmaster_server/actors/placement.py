"""Who owns what: partitions over loaders by mixture share, dp ranks over constructors in blocks. Pure functions."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

from loadmaster_flight.spec import RunSpec

from ..store import Definition, GenerationRecord, LeaseKind, LeaseRecord


def largest_shares(spec: RunSpec) -> list[float]:
    """The largest share of the mixture that each source has at any step, in ordinal order."""
    weights = spec.mixture.weights
    steps = sorted({knot.at for ramp in weights.values() for knot in ramp.knots} | {0})
    best = [0.0] * len(spec.sources)
    for step in steps:
        at_step = [weights[name].at(step) if name in weights else 0.0 for name in spec.source_names]
        total = sum(at_step) or 1.0
        best = [max(a, b / total) for a, b in zip(best, at_step, strict=True)]
    return best


def place_partitions(runs: Mapping[str, Definition], loaders: Sequence[int]) -> list[LeaseRecord]:
    """Spread all partitions of all sources: P = min(lanes, ceil(share * loaders)), each to the least loaded loader.

    Args:
        runs: Run name -> definition. Runs are placed by name, sources by ordinal, partitions by k.
        loaders: Numbers of the live loaders, in order; ties go to the first.

    Returns:
        One lease a partition; none without loaders. Depends on the arguments alone.
    """
    load = [(0.0, i) for i in range(len(loaders))]
    leases: list[LeaseRecord] = []
    for run in sorted(runs) if loaders else []:
        definition = runs[run]
        for manifest, share in zip(definition.manifests, largest_shares(definition.spec), strict=True):
            slots = min(manifest.lanes, max(1, math.ceil(share * len(loaders) - 1e-9)))
            for k in range(slots):
                busy, i = heapq.heappop(load)
                heapq.heappush(load, (busy + share / slots, i))
                leases.append(_partition(run, manifest.ordinal, k, slots, loaders[i]))
    return leases


def place_dp_ranks(generations: Sequence[GenerationRecord], constructors: Sequence[int]) -> list[LeaseRecord]:
    """Give each constructor a contiguous block of dp ranks, sizes differing by one at most.

    Args:
        generations: The streams that are being served.
        constructors: Numbers of the live constructors, in order.
    """
    num = len(constructors)
    return [
        LeaseRecord(
            run=generation.key.run,
            kind=LeaseKind.DP,
            stream=generation.key.stream,
            generation=generation.key.generation,
            slot=dp_rank,
            slots=generation.dp,
            actor=constructors[((dp_rank + 1) * num - 1) // generation.dp],
        )
        for generation in generations
        for dp_rank in range(generation.dp if num else 0)
    ]


def _partition(run: str, source: int, k: int, slots: int, actor: int) -> LeaseRecord:
    return LeaseRecord(run=run, kind=LeaseKind.PARTITION, source=source, slot=k, slots=slots, actor=actor)
