"""The loss denominator of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire.step_plan import WHOLE
from loadmaster_server.planning import PlannerState
from loadmaster_server.planning.rows import count_valid

Make = Callable[..., Any]


def _targets(spans: list[int] | None, num_tokens: int) -> set[int]:
    """Target token indexes with a loss: token 0 never is one."""
    if spans is None:
        return set(range(1, num_tokens))
    pairs = zip(spans[::2], spans[1::2], strict=True)
    return {j for start, stop in pairs for j in range(start, stop) if 1 <= j < num_tokens}


@given(
    num_tokens=st.integers(1, 40),
    edges=st.none() | st.lists(st.integers(0, 45), max_size=6, unique=True).filter(lambda e: len(e) % 2 == 0),
    cuts=st.tuples(st.integers(0, 39), st.integers(1, 40)),
)
def test_count_valid_when_a_piece_is_cut_then_it_counts_the_labels_that_it_holds(
    num_tokens: int, edges: list[int] | None, cuts: tuple[int, int]
) -> None:
    first, stop = min(cuts[0], num_tokens - 1), min(max(cuts), num_tokens)
    spans = None if edges is None else sorted(edges)
    array = None if spans is None else np.array(spans, np.int32).reshape(-1, 2)
    labels = {i + 1 for i in range(first, stop)} & _targets(spans, num_tokens)
    assert count_valid(array, first, stop, num_tokens) == len(labels)


@pytest.mark.parametrize("layout", ["pack", "concat", "pad"])
def test_global_valid_tokens_when_samples_are_cut_then_it_counts_each_target_once(
    make_rig: Make, spec_of: Make, fake_source: Make, layout: str
) -> None:
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 900, 64).tolist()
    spans = {i: sorted(rng.choice(950, 4, replace=False).tolist()) for i in range(0, 64, 2)} | {1: []}
    fake = fake_source(lengths, 2, 8, spans)
    seq_len = [{"at": 0, "value": 512}, {"at": 4, "value": 128}]
    spec = spec_of(1, seq_len=seq_len, layout=layout, until={"epochs": 1})
    rig, total = make_rig(spec, [fake]), 0
    while not rig.planner.is_over:
        rig = make_rig(spec, [fake], state=PlannerState.from_bytes(rig.planner.state().to_bytes()))
        plan = rig.next()
        p, valid = plan.pieces, 0
        for i, tokens in enumerate(rig.tokens_of(plan).tolist()):
            sample = int(p.shard[i]) * 8 + int(p.pos[i])
            first = int(p.first_token[i])
            assert (p.num_tokens[i] == WHOLE) == (tokens == lengths[sample])
            valid += len(_targets(spans.get(sample), lengths[sample]) & set(range(first + 1, first + tokens + 1)))
        assert plan.global_valid_tokens == valid
        total += valid
    assert total == sum(len(_targets(spans.get(i), n)) for i, n in enumerate(lengths))


def test_plan_when_made_then_its_sums_agree_with_its_pieces(make_rig: Make, spec_of: Make) -> None:
    lengths = [np.random.default_rng(s).integers(1, 2000, 200).tolist() for s in range(3)]
    rig = make_rig(spec_of(3), lengths, dp=2)
    for plan in rig.steps(20):
        tokens = rig.tokens_of(plan)
        assert plan.num_tokens == tokens.sum()
        assert plan.source_tokens_S.tolist() == np.bincount(plan.pieces.source, tokens, minlength=3).tolist()
        assert plan.pieces.canonical_order().tolist() == list(range(len(tokens)))
        assert plan.digest == plan.with_digest().digest
