from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_server.actors import place_dp_ranks, place_partitions
from loadmaster_server.actors.placement import largest_shares
from loadmaster_server.actors.progress import Progress
from loadmaster_server.store import Definition, GenerationKey, GenerationRecord, GenerationState


def _definition(weights: list[float], lanes: list[int]) -> Definition:
    names = [f"s{i}" for i in range(len(weights))]
    spec = RunSpec.model_validate(
        {
            "run": "run",
            "sources": {name: {"uri": name, "transform": {"text": "text"}} for name in names},
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


def test_dp_ranks_when_no_constructor_is_there_then_none() -> None:
    assert place_dp_ranks([_generation(4)], []) == []


def test_progress_when_a_rank_is_silent_then_the_stored_step_counts() -> None:
    progress = Progress(_generation(2, acknowledged=5, tp=2))
    progress.note([0, 1, 2], 9)
    assert progress.common == 5
    progress.note([3], 7)
    progress.note([0, 1, 2], 6)
    assert progress.common == 7
