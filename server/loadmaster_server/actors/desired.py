"""The desired state of every process, as one frozen picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from loadmaster_flight.wire.control import Assignment, Lease, LoaderRoute

from ..store import Definition, GenerationKey, GenerationRecord, LeaseKind, LeaseRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """What one process should do. `serves` says which global ranks of a generation a constructor has."""

    leases: list[Lease] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)

    @property
    def serves(self) -> dict[GenerationKey, list[int]]:
        """Ranks by generation, of a constructor."""
        return {GenerationKey(run=a.run, stream=a.stream, generation=a.generation): a.ranks for a in self.assignments}

    @property
    def runs(self) -> set[str]:
        """The runs that the process has to do with."""
        return {lease.run for lease in self.leases} | {assignment.run for assignment in self.assignments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that leases are derived from, and the duties that follow."""

    generations: dict[GenerationKey, GenerationRecord] = field(default_factory=dict)
    duties: dict[int, Duties] = field(default_factory=dict)


def draw_picture(
    runs: Mapping[str, Definition],
    generations: Sequence[GenerationRecord],
    leases: Sequence[LeaseRecord],
    addresses: Mapping[int, str],
) -> Picture:
    """Turn leases into each process's duties.

    Args:
        runs: Run name -> definition of the active runs.
        generations: Their newest generations.
        leases: All leases, of partitions and of dp ranks.
        addresses: Number -> address of the live actors.
    """
    routes = _routes((lease for lease in leases if not lease.standby), addresses)
    shadows = _routes((lease for lease in leases if lease.standby == 1), addresses)
    by_actor: defaultdict[int, list[LeaseRecord]] = defaultdict(list)
    for lease in leases:
        by_actor[lease.actor].append(lease)
    known = {generation.key: generation for generation in generations}
    duties = {
        actor: Duties(leases=_partitions(held), assignments=_assignments(held, known, runs, routes, shadows))
        for actor, held in by_actor.items()
    }
    return Picture(generations=known, duties=duties)


def _routes(leases: Iterable[LeaseRecord], addresses: Mapping[int, str]) -> dict[str, list[LoaderRoute]]:
    """Per run, where partitions are found."""
    places: defaultdict[str, defaultdict[int, list[list[int]]]] = defaultdict(lambda: defaultdict(list))
    for lease in leases:
        if lease.kind is LeaseKind.PARTITION:
            places[lease.run][lease.actor].append([lease.source, lease.slot, lease.slots])
    return {
        run: [LoaderRoute(address=addresses[actor], partitions=triples) for actor, triples in sorted(owners.items())]
        for run, owners in places.items()
    }


def _partitions(held: Iterable[LeaseRecord]) -> list[Lease]:
    return [
        Lease(
            run=lease.run,
            source=lease.source,
            partition=lease.slot,
            partitions=lease.slots,
            is_standby=lease.standby > 0,
        )
        for lease in held
        if lease.kind is LeaseKind.PARTITION
    ]


def _assignments(
    held: Iterable[LeaseRecord],
    generations: Mapping[GenerationKey, GenerationRecord],
    runs: Mapping[str, Definition],
    routes: Mapping[str, list[LoaderRoute]],
    shadows: Mapping[str, list[LoaderRoute]],
) -> list[Assignment]:
    """Ranks that the process serves, and those that it is to serve soon: it builds for both alike."""
    dp_ranks: defaultdict[GenerationKey, list[int]] = defaultdict(list)
    for lease in held:
        if lease.kind is LeaseKind.DP:
            key = GenerationKey(run=lease.run, stream=lease.stream, generation=lease.generation)
            dp_ranks[key].append(lease.slot)
    return [
        _assignment(generations[key], ranks, runs[key.run], routes.get(key.run, []), shadows.get(key.run, []))
        for key, ranks in dp_ranks.items()
    ]


def _assignment(
    generation: GenerationRecord,
    dp_ranks: list[int],
    definition: Definition,
    loaders: list[LoaderRoute],
    shadows: list[LoaderRoute],
) -> Assignment:
    dp_of_rank = generation.coords["dp"]
    ranks = np.flatnonzero(np.isin(dp_of_rank, dp_ranks))
    return Assignment(
        run=generation.key.run,
        stream=generation.key.stream,
        generation=generation.key.generation,
        first_step=generation.first_step,
        ranks=ranks.tolist(),
        dp_of_rank=dp_of_rank[ranks].tolist(),
        mesh=generation.mesh,
        build_ahead=min(definition.spec.budgets.build_ahead, definition.spec.budgets.bind_ahead),
        loaders=loaders,
        shadows=shadows,
        skip=generation.skip.as_list(),
    )
