"""The ledger's accounts over planned steps: silent for what the planner does, loud for anything else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_server.ledger.accounts import Accounts, Finding
from loadmaster_server.ledger.closing import LeftOut, close
from loadmaster_server.ledger.ranges import split_pieces
from loadmaster_server.planning import PlannerState
from loadmaster_server.planning.origins import decode_origins, packed

Make = Callable[..., Any]
CASES: dict[str, dict[str, Any]] = {
    "pack": {"seq_len": 128, "microbatches": 4},
    "concat": {"seq_len": 128, "microbatches": 4, "layout": "concat"},
    "pad": {"seq_len": 128, "microbatches": 4, "rows": 2, "layout": "pad"},
    "skip": {"seq_len": 64, "microbatches": 4, "over_long": "skip"},
    "late": {"seq_len": 128, "microbatches": 4, "outlier_delay": {"max_age_steps": 3}},
    "tiny": {"seq_len": 1024, "microbatches": 8},
}


@dataclass(frozen=True, kw_only=True)
class Logged:
    """A step as the plan log has it, with the planner's state after it."""

    plan: StepPlan
    summary: dict[str, Any]
    state: PlannerState


def _run(rig: Any, num_steps: int) -> tuple[list[Logged], dict[tuple[int, int, int], list[int]]]:
    """Planned steps, and what they left out by block."""
    steps, left_out, seen = list[Logged](), defaultdict[tuple[int, int, int], list[int]](list), set[tuple[int, ...]]()
    while not rig.planner.is_over and len(steps) < num_steps:
        plan = rig.next()
        steps.append(Logged(plan=plan, summary={"origins": rig.planner.origins()}, state=rig.planner.state()))
        for row in rig.planner.new_verdicts().to_pylist():
            key = (row["source"], row["shard"], row["block"], row["row"])
            if key not in seen:  # the journal has a row once, however many epochs leave it out
                left_out[key[:3]].append(row["epoch"])
            seen.add(key)
    return steps, dict(left_out)


def _audit(steps: list[Logged], left_out: dict[tuple[int, int, int], list[int]], every: int) -> list[Finding]:
    """All findings; the accounts are closed after every few steps and after the last one."""
    accounts, findings = Accounts(), list[Finding]()
    for i, logged in enumerate(steps, 1):
        origins = decode_origins(logged.plan.step, len(logged.plan.pieces), logged.summary)
        findings += accounts.take(logged.plan.step, *split_pieces(logged.plan.pieces, origins))
        if i % every == 0 or i == len(steps):
            findings += close(accounts, logged.state, LeftOut.of(left_out))
    return findings


def _sources(fake_source: Callable[..., Any], seed: int, lanes: int) -> list[Any]:
    """Three sources, of which the last two are over in a few steps; some rows are skipped or bad, some are long."""
    rng = np.random.default_rng(seed)
    lengths = [(rng.lognormal(3.2, 0.9, size).astype(int) - 3).clip(-1, 400).tolist() for size in (150, 40, 9)]
    for of_source in lengths:
        of_source[0] = 20
    return [fake_source(of_source, lanes=lanes, rows_per_shard=int(rng.integers(1, 12))) for of_source in lengths]


PROPERTY = settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUM_STEPS = 16


@pytest.mark.parametrize("name", CASES)
@PROPERTY
@given(seed=st.integers(0, 1 << 20), every=st.integers(1, 7), lanes=st.integers(1, 4))
def test_accounts_when_the_planner_planned_then_silent(
    make_rig: Make, spec_of: Make, fake_source: Make, name: str, seed: int, every: int, lanes: int
) -> None:
    spec = spec_of(3, source={"max_bad_ratio": 1}, until={"steps": NUM_STEPS}, **CASES[name])
    steps, left_out = _run(make_rig(spec, _sources(fake_source, seed, lanes), dp=2), NUM_STEPS)
    assert _audit(steps, left_out, every) == []


@pytest.mark.parametrize("until", [{"epochs": 1}, {"epochs": 3}])
@pytest.mark.parametrize("name", ["pack", "concat", "skip"])
def test_accounts_when_the_stream_ends_by_itself_then_silent(
    make_rig: Make, spec_of: Make, fake_source: Make, name: str, until: dict[str, int]
) -> None:
    spec = spec_of(3, source={"max_bad_ratio": 1}, until=until, **CASES[name])
    steps, left_out = _run(make_rig(spec, _sources(fake_source, 5, 2), dp=2), 500)
    assert steps[-1].plan.is_final
    assert _audit(steps, left_out, 8) == []


@pytest.mark.parametrize("name", CASES)
@PROPERTY
@given(seed=st.integers(0, 1 << 20), pick=st.integers(0, 1 << 20))
def test_accounts_when_a_piece_is_taken_out_then_it_is_missed(
    make_rig: Make, spec_of: Make, fake_source: Make, name: str, seed: int, pick: int
) -> None:
    spec = spec_of(3, source={"max_bad_ratio": 1}, until={"steps": NUM_STEPS}, **CASES[name])
    steps, left_out = _run(make_rig(spec, _sources(fake_source, seed, 2), dp=2), NUM_STEPS)
    at = pick % len(steps)
    plan = steps[at].plan
    gone = pick // 64 % len(plan.pieces)
    steps[at] = _without(steps[at], gone)
    findings = _audit(steps, left_out, 4)
    sources = {int(plan.pieces.source[gone])}
    assert {finding.kind for finding in findings} == {"lost"}
    assert {f.place.source for f in findings if f.place is not None} <= sources
    assert all(f.place is not None or f"source {next(iter(sources))} epoch" in f.text for f in findings)


def _without(logged: Logged, gone: int) -> Logged:
    """A step without one of its pieces, and with origins that do not betray it."""
    plan, origins = logged.plan, decode_origins(logged.plan.step, len(logged.plan.pieces), logged.summary)
    assert origins is not None
    keep_N = np.arange(len(plan.pieces)) != gone
    waited_N = plan.step - origins.drawn_N[keep_N]
    index_W = np.flatnonzero(waited_N)
    is_cut_N = plan.pieces.num_tokens >= 0
    kept = {
        "credit": [],
        "waited": packed(np.concatenate([np.diff(index_W, prepend=0), waited_N[index_W]])),
        "cut_of": origins.sample_tokens_M[keep_N[is_cut_N]].tolist(),
    }
    return replace(logged, plan=replace(plan, pieces=plan.pieces.take(keep_N)), summary={"origins": kept})
