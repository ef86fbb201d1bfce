"""Who owns what, and who stands by: partitions over loaders by mixture share, dp ranks over constructors.

Pure functions of what was owned before, who is there, and the shares: who keeps what it has is not disturbed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from loadmaster_flight.spec import RunSpec

from ..store import Definition, GenerationRecord, LeaseKind, LeaseRecord
from .partitioning import Slot, slots_before, slots_of

EPSILON = 1e-9


class Held(NamedTuple):
    """What was owned before: per slot its owner, and who stood by, the first one first."""

    owners: dict[Slot, int]
    standbys: dict[Slot, list[int]]


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


def place_partitions(
    runs: Mapping[str, Definition], loaders: Sequence[int], previous: Iterable[LeaseRecord] = ()
) -> list[LeaseRecord]:
    """Give every partition of all sources an owner and its shadows, moving no more than must move.

    A partition stays where it is. One without an owner goes to the first of its standbys, else to the least loaded
    loader. Then partitions move from the busiest to the idlest while the two differ by more than the largest
    partition: so a loss moves nothing but what was lost, and a new loader gets its part and disturbs nobody else.

    Args:
        runs: Run name -> definition. Runs are placed by name, sources by ordinal, partitions by k.
        loaders: Numbers of the loaders that may own something, in order; ties go to the first.
        previous: Leases to keep. Those of a run that nobody reads are better left out: it is dealt anew.

    Returns:
        One lease a partition and one a shadow; none without loaders. Depends on the arguments alone.
    """
    if not loaders:
        return []
    before = [lease for lease in previous if lease.kind is LeaseKind.PARTITION]
    weights, shadows = _wanted(runs, len(loaders), before)
    held = _held(weights, before)
    board = _Board(weights, loaders)
    for slot in weights:
        if (owner := held.owners.get(slot)) in board.load:
            board.give(slot, owner)
    for slot in weights:
        standby = next((actor for actor in held.standbys.get(slot, ()) if actor in board.load), None)
        if slot not in board.owner and standby is not None:
            board.give(slot, standby)
    board.deal([slot for slot in weights if slot not in board.owner])
    board.level(held.standbys)
    watch = _Watch(board, weights)
    standbys = {slot: watch.choose(slot, shadows[slot], held.standbys.get(slot, ())) for slot in weights}
    return [
        _partition(slot, actor, standby)
        for slot in weights
        for standby, actor in enumerate([board.owner[slot], *standbys[slot]])
    ]


def place_dp_ranks(
    generations: Sequence[GenerationRecord], constructors: Sequence[int], previous: Iterable[LeaseRecord] = ()
) -> list[LeaseRecord]:
    """Give each constructor dp ranks, as many as the others or one more, moving no more than must move.

    Without `previous` each gets a contiguous block.

    Args:
        generations: The streams that are being served.
        constructors: Numbers of the constructors that may serve something, in order.
        previous: Leases to keep.
    """
    if not constructors:
        return []
    owners: defaultdict[tuple[str, str, int], dict[int, int]] = defaultdict(dict)
    for lease in previous:
        if lease.kind is LeaseKind.DP and not lease.standby:
            owners[lease.run, lease.stream, lease.generation][lease.slot] = lease.actor
    leases = []
    for generation in generations:
        key = generation.key
        owner = _deal_ranks(generation.dp, constructors, owners[key.run, key.stream, key.generation])
        leases += [_dp_rank(generation, dp_rank, owner[dp_rank]) for dp_rank in range(generation.dp)]
    return leases


class _Board:
    """Owners and loads while they are being dealt. Loaders are named by number, ties go to the first in order."""

    def __init__(self, weights: Mapping[Slot, float], loaders: Sequence[int]) -> None:
        self._weights, self._order = weights, {actor: i for i, actor in enumerate(loaders)}
        self.owner: dict[Slot, int] = {}
        self.load = dict.fromkeys(loaders, 0.0)
        self.bound = max(weights.values(), default=0.0)

    def give(self, slot: Slot, actor: int) -> None:
        """Make `actor` the owner."""
        if (before := self.owner.get(slot)) is not None:
            self.load[before] -= self._weights[slot]
        self.owner[slot] = actor
        self.load[actor] += self._weights[slot]

    def deal(self, slots: Iterable[Slot]) -> None:
        """Give each, in order, to the least loaded."""
        heap = [(load, self._order[actor], actor) for actor, load in self.load.items()]
        heapq.heapify(heap)
        for slot in slots:
            _, order, actor = heapq.heappop(heap)
            self.give(slot, actor)
            heapq.heappush(heap, (self.load[actor], order, actor))

    def level(self, standbys: Mapping[Slot, Sequence[int]]) -> None:
        """Move from the busiest to the idlest while they differ by more than the largest partition."""
        while True:
            busiest = max(self.load, key=lambda actor: (self.load[actor], -self._order[actor]))
            idlest = self.idlest()
            gap = self.load[busiest] - self.load[idlest]
            if gap <= self.bound + EPSILON:
                return
            owned = [slot for slot, actor in self.owner.items() if actor == busiest and self._weights[slot] > EPSILON]
            self.give(max(owned, key=lambda s: (idlest in standbys.get(s, ()), self._weights[s])), idlest)

    def idlest(self) -> int:
        """The least loaded loader."""
        return min(self.load, key=lambda actor: (self.load[actor], self._order[actor]))


class _Watch:
    """Chooses shadows: the first so that, whichever owner is lost, what it had spreads evenly over the others."""

    def __init__(self, board: _Board, weights: Mapping[Slot, float]) -> None:
        self._board, self._weights = board, weights
        self._after_loss: dict[int, dict[int, float]] = {}
        self._further = dict.fromkeys(board.load, 0.0)

    def choose(self, slot: Slot, num: int, before: Sequence[int]) -> list[int]:
        """As many other loaders as wanted and there; who stood by before stays while that is even enough."""
        owner = self._board.owner[slot]
        others = [actor for actor in self._board.load if actor != owner]
        chosen: list[int] = []
        for i in range(min(num, len(others))):
            loads = self._further if i else self._after_loss.setdefault(owner, dict(self._board.load))
            free = [actor for actor in others if actor not in chosen]
            least = min(free, key=lambda actor: loads[actor])
            known = (a for a in before if a in free and loads[a] <= loads[least] + self._board.bound + EPSILON)
            chosen.append(next(known, least))
            loads[chosen[-1]] += self._weights[slot]
        return chosen


def _wanted(
    runs: Mapping[str, Definition], num_loaders: int, before: Sequence[LeaseRecord]
) -> tuple[dict[Slot, float], dict[Slot, int]]:
    """Weight and number of shadows of each partition, in the order in which they are placed."""
    weights: dict[Slot, float] = {}
    shadows: dict[Slot, int] = {}
    cut = slots_before(before)
    for run in sorted(runs):
        definition = runs[run]
        for manifest, share in zip(definition.manifests, largest_shares(definition.spec), strict=True):
            slots = slots_of(share, manifest.lanes, num_loaders, cut.get((run, manifest.ordinal)))
            for k in range(slots):
                slot = Slot(run, manifest.ordinal, k, slots)
                weights[slot] = share / slots
                shadows[slot] = definition.spec.sources[manifest.name].shadows
    return weights, shadows


def _held(slots: Iterable[Slot], before: Sequence[LeaseRecord]) -> Held:
    """Who had the lanes of each partition; they may have been cut into fewer ones then."""
    cut = slots_before(before)
    owners: dict[tuple[str, int, int], int] = {}
    standbys: defaultdict[tuple[str, int, int], list[int]] = defaultdict(list)
    for lease in sorted(before, key=lambda lease: lease.standby):
        place = (lease.run, lease.source, lease.slot)
        if lease.standby:
            standbys[place].append(lease.actor)
        else:
            owners[place] = lease.actor
    held = Held({}, {})
    for slot in slots:
        place = (slot.run, slot.source, slot.k % cut.get((slot.run, slot.source), 1))
        if place in owners:
            held.owners[slot] = owners[place]
        if place in standbys:
            held.standbys[slot] = standbys[place]
    return held


def _deal_ranks(dp: int, constructors: Sequence[int], before: Mapping[int, int]) -> dict[int, int]:
    """Owner of each rank. Who has most gets the larger parts; whoever has too much gives up its last ranks."""
    kept = {actor: sorted(r for r, owner in before.items() if owner == actor and r < dp) for actor in constructors}
    num, extra = divmod(dp, len(constructors))
    by_size = sorted(constructors, key=lambda actor: -len(kept[actor]))
    if not any(kept.values()):  # all is new: the larger blocks are the last ones
        by_size = list(reversed(constructors))
    quota = {actor: num + (i < extra) for i, actor in enumerate(by_size)}
    owner = {rank: actor for actor, ranks in kept.items() for rank in ranks[: quota[actor]]}
    free = iter([rank for rank in range(dp) if rank not in owner])
    for actor in constructors:
        for _ in range(quota[actor] - len(kept[actor])):
            owner[next(free)] = actor
    return owner


def _partition(slot: Slot, actor: int, standby: int) -> LeaseRecord:
    return LeaseRecord(
        run=slot.run,
        kind=LeaseKind.PARTITION,
        source=slot.source,
        slot=slot.k,
        slots=slot.slots,
        actor=actor,
        standby=standby,
    )


def _dp_rank(generation: GenerationRecord, dp_rank: int, actor: int) -> LeaseRecord:
    return LeaseRecord(
        run=generation.key.run,
        kind=LeaseKind.DP,
        stream=generation.key.stream,
        generation=generation.key.generation,
        slot=dp_rank,
        slots=generation.dp,
        actor=actor,
    )
