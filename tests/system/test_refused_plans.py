"""What no rank could be served by an embedded run: `check` and `connect` refuse it, in the same words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loadmaster
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_server.cli.check import main as check
from support.bad_strategies import RULES, dotted

BATCH = {"seq_len": 64, "microbatches": 4}

RUNS: list[tuple[dict[str, Any], str]] = [
    *(({"strategy": dotted(name)}, rule) for name, rule in RULES.items()),
    ({"mesh": {"cp": 3}}, "2 * cp must divide align, got cp 3 and align 16"),
    ({"mesh": {"dp": 3}}, "dp must divide microbatches, got dp 3 and 4 microbatches in train"),
    ({"mesh": {"dp": 1, "speed": {1: 0.5}}}, "mesh.speed must name ranks in [0, 1), got 1"),
    ({"mesh": {"speed": {4: 0.5}}}, "must name ranks in [0, "),
    ({"mesh": {"speed": {0: float("nan")}}}, "mesh.speed.0: must be"),
    ({"batch": BATCH | {"over_long": "keep"}}, "batch.over_long: must be 'split' or 'skip', got 'keep'"),
]


@pytest.mark.parametrize(("fields", "rule"), RUNS, ids=[rule[:44] for _, rule in RUNS])
def test_run_when_no_step_could_be_served_then_check_and_connect_refuse_it(
    make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str], fields: dict[str, Any], rule: str
) -> None:
    run = make_run(**({"batch": BATCH} | fields))
    assert check([str(run)]) == 2
    assert rule in capsys.readouterr().err
    own = fields.get("mesh", {})
    world_size = own.get("dp", 1) * own.get("cp", 1)
    with pytest.raises(LoadmasterError) as caught:
        loadmaster.connect(str(run), world_size=world_size, framework="numpy").start()
    assert rule in caught.value.message


CONNECTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"mesh": {"cp": 2}}, {"world_size": 3}, "the mesh must have world_size = 3 ranks, got pp 1 * dp auto"),
    ({}, {"world_size": 3, "mesh": {"cp": 3}}, "2 * cp must divide align, got cp 3 and align 16"),
    ({"strategy": dotted("in_pairs")}, {"world_size": 1}, "group_size must divide the 1 consumers of dp"),
]


@pytest.mark.parametrize(("fields", "options", "rule"), CONNECTS, ids=[rule[:44] for *_, rule in CONNECTS])
def test_connect_when_the_mesh_of_the_ranks_does_not_fit_then_refused_though_check_could_not_know(
    make_run: Callable[..., Path], fields: dict[str, Any], options: dict[str, Any], rule: str
) -> None:
    run = make_run(**({"batch": BATCH} | fields))
    assert check([str(run), "--json"]) == 0
    with pytest.raises(LoadmasterError) as caught:
        loadmaster.connect(str(run), framework="numpy", **options).start()
    assert rule in caught.value.message
