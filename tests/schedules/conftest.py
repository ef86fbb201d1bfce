"""Schedules and specs to put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_flight.spec import RunSpec, ScheduleSpec

MakeSchedule = Callable[..., ScheduleSpec]
MakeSpec = Callable[..., RunSpec]


@pytest.fixture
def make_schedule() -> MakeSchedule:
    """Schedules of `web` 3 and `code` 1 in which keywords replace curves; `weights` replaces all of these."""

    def make(*, weights: dict[str, Any] | None = None, **fields: Any) -> ScheduleSpec:
        names = {name: value for name, value in fields.items() if name not in ScheduleSpec.model_fields}
        rest = {name: value for name, value in fields.items() if name not in names}
        merged = {"web": 3, "code": 1} | names if weights is None else weights
        return ScheduleSpec.model_validate({"microbatches": 4, "seq_len": 64, "weights": merged} | rest)

    return make


@pytest.fixture
def make_spec() -> MakeSpec:
    """Specs of runs over `web`, `code` and, without any share, `math`."""

    def make(*, weights: dict[str, Any] | None = None, sources: dict[str, Any] | None = None, **spec: Any) -> RunSpec:
        of = {name: {"uri": f"{name}.jsonl", "transform": {"text": "text"}} for name in ("web", "code", "math")}
        for name, more in (sources or {}).items():
            of[name] = of[name] | more
        tree: dict[str, Any] = {"run": "run", "sources": of, "batch": {"seq_len": 64, "microbatches": 4}}
        tree["mixture"] = {"weights": weights or {"web": 3, "code": 1}}
        return RunSpec.model_validate(tree | spec)

    return make
