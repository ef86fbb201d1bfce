from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.spec.mesh import TpMode
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_server.actors import place_dp_ranks, place_partitions
from loadmaster_server.actors.placement import largest_shares
from loadmaster_server.actors.progress import Progress
from loadmaster_server.store import Definition, GenerationKey, GenerationRecord, GenerationState, LeaseRecord


def _definition(weights: list[float], lanes: list[int], *, shadows: int = 0) -> Definition:
    names = [f"s{i}" for i in range(len(weights))]
    source = {"transform": {"text": "text"}, "shadows": shadows}
    spec = RunSpec.model_validate(
        {
            "run": "run",
            "sources": {name: source | {"uri": name} for name in names},
            "mixture": {"weights": dict(zip(names, weights, strict=True))},
            "batch": {"seq_len": 64, "microbatches": 4},
        }
    )
    frozen = {"format": "jsonl", "unit_kind": "shard", "block_bytes": 4096, "shards": [], "fingerprint": "f"}
    manifests = [
        SourceManifest.model_validate(frozen | {"name": name, "ordinal": i, "lanes": lanes[i]})
        for i, name in enumerate(names)
    ]
    return Definition(spec=spec, manifests=tuple(manifests))


def _generation(dp: int, *, acknowledged: int = 0, tp: int = 1) -> GenerationRecord:
    return GenerationRecord(
        key=GenerationKey(run="run", stream="train", generation=0),
        parent=-1,
        parent_step=0,
        first_step=0,
        mesh={"pp": 1, "dp": dp, "cp": 1, "tp": tp},
        world_size=dp * tp,
        state=GenerationState.OPEN,
        code="",
        reason="",
        planned=0,
        bound=0,
        acknowledged=acknowledged,
        end_step=None,
    )


def test_shares_when_weights_ramp_then_the_largest_of_each() -> None:
    definition = _definition([1, 1], [1, 1])
    ramp = {"knots": [{"at": 0, "value": 0}, {"at": 10, "value": 3}]}
    tree = definition.spec.to_tree() | {"mixture": {"weights": {"s0": 1, "s1": ramp}}}
    assert largest_shares(RunSpec.model_validate(tree)) == [1.0, 0.75]


@pytest.mark.parametrize(
    ("weights", "lanes", "num_loaders", "partitions"),
    [
        ([1], [8], 1, [1]),
        ([1], [8], 3, [3]),
        ([1], [2], 3, [2]),
        ([3, 1], [8, 8], 4, [3, 1]),
        ([1, 1, 1], [8, 8, 8], 3, [1, 1, 1]),
        ([9999, 1], [8, 8], 4, [4, 1]),
    ],
)
def test_partitions_when_shares_differ_then_as_many_as_the_share_asks_for(
    weights: list[float], lanes: list[int], num_loaders: int, partitions: list[int]
) -> None:
    leases = place_partitions({"run": _definition(weights, lanes)}, list(range(num_loaders)))
    assert [sum(lease.source == source for lease in leases) for source in range(len(weights))] == partitions


@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.integers(1, 8)), min_size=1, max_size=8),
    st.lists(st.integers(1, 99), min_size=1, max_size=6, unique=True),
)
def test_partitions_when_placed_then_each_lane_has_one_owner_and_it_is_repeatable(
    sources: list[tuple[float, int]], loaders: list[int]
) -> None:
    definition = _definition([weight for weight, _ in sources], [lanes for _, lanes in sources])
    leases = place_partitions({"run": definition}, loaders)
    owned = Counter(
        (lease.source, lane)
        for lease in leases
        for lane in range(sources[lease.source][1])
        if lane % lease.slots == lease.slot
    )
    assert owned == Counter((source, lane) for source, (_, lanes) in enumerate(sources) for lane in range(lanes))
    assert {lease.actor for lease in leases} <= set(loaders)
    assert leases == place_partitions({"run": definition}, loaders)


SOURCES = st.lists(st.tuples(st.floats(0.01, 100), st.integers(1, 16)), min_size=1, max_size=8)
LOADERS = st.lists(st.integers(1, 99), min_size=2, max_size=7, unique=True)


def _loads(definition: Definition, leases: list[LeaseRecord], loaders: list[int]) -> tuple[list[float], float]:
    """Load of each loader, and of the largest partition."""
    shares = largest_shares(definition.spec)
    weight = {(lease.source, lease.slot): shares[lease.source] / lease.slots for lease in _owned(leases)}
    return [
        sum(weight[lease.source, lease.slot] for lease in _owned(leases) if lease.actor == actor) for actor in loaders
    ], max(weight.values())


def _owned(leases: list[LeaseRecord]) -> list[LeaseRecord]:
    return [lease for lease in leases if not lease.standby]


def _owner_of_lane(definition: Definition, leases: list[LeaseRecord]) -> dict[tuple[int, int], int]:
    return {
        (lease.source, lane): lease.actor
        for lease in _owned(leases)
        for lane in range(lease.slot, definition.manifests[lease.source].lanes, lease.slots)
    }


@given(SOURCES, LOADERS, st.data())
def test_partitions_when_loaders_come_and_go_then_balanced_and_settled(
    sources: list[tuple[float, int]], loaders: list[int], data: st.DataObject
) -> None:
    runs = {"run": _definition([w for w, _ in sources], [lanes for _, lanes in sources])}
    leases = place_partitions(runs, loaders)
    for _ in range(4):
        there = data.draw(st.lists(st.sampled_from(loaders), min_size=1, unique=True))
        leases = place_partitions(runs, there, leases)
        loads, largest = _loads(runs["run"], leases, there)
        assert max(loads) - min(loads) <= largest + 1e-6
        assert place_partitions(runs, there, leases[::-1]) == leases
        assert _owner_of_lane(runs["run"], leases).keys() == {
            (source, lane) for source, (_, lanes) in enumerate(sources) for lane in range(lanes)
        }


@given(SOURCES, LOADERS, st.integers(0, 6))
def test_partitions_when_a_loader_goes_then_only_its_own_move(
    sources: list[tuple[float, int]], loaders: list[int], index: int
) -> None:
    runs = {"run": _definition([w for w, _ in sources], [lanes for _, lanes in sources])}
    before = place_partitions(runs, loaders)
    lost = loaders[index % len(loaders)]
    after = place_partitions(runs, [actor for actor in loaders if actor != lost], before)
    assert {(lease.source, lease.slot, lease.slots) for lease in before} == {
        (lease.source, lease.slot, lease.slots) for lease in after
    }
    kept = {lease for lease in before if lease.actor != lost}
    assert kept <= set(after)


@given(SOURCES, LOADERS)
def test_partitions_when_a_loader_that_was_lost_comes_back_then_nothing_moves_but_to_it(
    sources: list[tuple[float, int]], loaders: list[int]
) -> None:
    definition = _definition([w for w, _ in sources], [lanes for _, lanes in sources])
    before = place_partitions({"run": definition}, loaders[1:], place_partitions({"run": definition}, loaders))
    after = place_partitions({"run": definition}, [*loaders[1:], 100], before)
    was, now = _owner_of_lane(definition, before), _owner_of_lane(definition, after)
    assert {now[lane] for lane in was if now[lane] != was[lane]} <= {100}


def test_partitions_when_more_loaders_come_than_there_are_partitions_then_they_are_split_in_place() -> None:
    runs = {"run": _definition([3, 1], [8, 8])}
    two = place_partitions(runs, [1, 2])
    four = place_partitions(runs, [1, 2, 3, 4], two)
    assert {(lease.source, lease.slots) for lease in four} == {(0, 4), (1, 1)}
    was, now = _owner_of_lane(runs["run"], two), _owner_of_lane(runs["run"], four)
    assert {now[lane] for lane in was if now[lane] != was[lane]} == {3, 4}
    assert sum(now[0, lane] != was[0, lane] for lane in range(8)) == 2


@given(SOURCES, LOADERS, st.integers(1, 3), st.integers(0, 6))
def test_shadows_when_the_owner_is_lost_then_the_first_of_them_owns(
    sources: list[tuple[float, int]], loaders: list[int], shadows: int, index: int
) -> None:
    definition = _definition([w for w, _ in sources], [lanes for _, lanes in sources], shadows=shadows)
    before = place_partitions({"run": definition}, loaders)
    by_slot: dict[tuple[int, int], list[int]] = {}
    for lease in sorted(before, key=lambda lease: lease.standby):
        by_slot.setdefault((lease.source, lease.slot), []).append(lease.actor)
    assert all(len(set(a)) == len(a) == min(1 + shadows, len(loaders)) for a in by_slot.values())
    lost = loaders[index % len(loaders)]
    after = place_partitions({"run": definition}, [actor for actor in loaders if actor != lost], before)
    assert [lease.actor for lease in _owned(after)] == [
        by_slot[lease.source, lease.slot][1] if lease.actor == lost else lease.actor for lease in _owned(before)
    ]


def test_partitions_when_no_loader_is_there_then_none() -> None:
    assert place_partitions({"run": _definition([1], [4])}, []) == []


@given(st.integers(1, 64), st.lists(st.integers(1, 99), min_size=1, max_size=9, unique=True))
def test_dp_ranks_when_placed_then_contiguous_blocks_of_like_size(dp: int, constructors: list[int]) -> None:
    leases = place_dp_ranks([_generation(dp)], constructors)
    owners = [lease.actor for lease in leases]
    assert [lease.slot for lease in leases] == list(range(dp))
    assert owners == sorted(owners, key=constructors.index)
    sizes = [owners.count(actor) for actor in constructors]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 64), st.lists(st.integers(1, 99), min_size=1, max_size=9, unique=True), st.data())
def test_dp_ranks_when_constructors_come_and_go_then_balanced_with_the_fewest_moves(
    dp: int, constructors: list[int], data: st.DataObject
) -> None:
    leases = place_dp_ranks([_generation(dp)], constructors)
    for _ in range(4):
        there = data.draw(st.lists(st.sampled_from(constructors), min_size=1, unique=True))
        after = place_dp_ranks([_generation(dp)], there, leases)
        held = sorted((sum(lease.actor == actor for lease in leases) for actor in there), reverse=True)
        num, extra = divmod(dp, len(there))
        quotas = [num + (i < extra) for i in range(len(there))]
        assert sorted((sum(lease.actor == actor for lease in after) for actor in there), reverse=True) == quotas
        stay = sum(min(has, quota) for has, quota in zip(held, quotas, strict=True))
        assert sum(a.actor == b.actor for a, b in zip(leases, after, strict=True)) == stay
        assert place_dp_ranks([_generation(dp)], there, after) == after
        leases = after


def test_dp_ranks_when_no_constructor_is_there_then_none() -> None:
    assert place_dp_ranks([_generation(4)], []) == []


def test_progress_when_a_rank_is_silent_then_the_stored_step_counts() -> None:
    progress = Progress(_generation(2, acknowledged=5, tp=2), TpMode.READ)
    progress.note([0, 1, 2], [9, 9, 9])
    assert progress.common == 5
    progress.note([3], [7])
    progress.note([0, 1, 2], [6, 6, 6])
    assert progress.common == 7


def test_progress_when_tp_0_hands_batches_on_then_it_alone_counts() -> None:
    generation = _generation(2, acknowledged=5, tp=2)
    progress = Progress(generation, TpMode.BROADCAST)
    progress.note([0, 2], [9, 7])
    assert generation.fetching(TpMode.BROADCAST).tolist() == [True, False, True, False]
    assert progress.common == 7


@pytest.mark.parametrize(
    ("ranks", "steps", "says"),
    [([2], [9], r"ranks must be in \[0, 2\), got 2"), ([-1], [9], "got -1"), ([0, 1], [9], "each of 2 ranks, got 1")],
)
def test_progress_when_the_word_does_not_fit_then_refused(ranks: list[int], steps: list[int], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        Progress(_generation(2), TpMode.READ).note(ranks, steps)
