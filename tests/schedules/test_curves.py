"""The table of cases that Python and TypeScript share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadmaster_flight.spec import Ramp, Shape

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "curve_cases.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_curve_when_evaluated_then_the_table_agrees(case: dict[str, Any]) -> None:
    ramp = Ramp.model_validate(case["knots"])
    found = [[step, ramp.at(step)] for step, _ in case["values"]]
    assert found == [[step, pytest.approx(value, rel=1e-12, abs=1e-15)] for step, value in case["values"]]


def test_table_has_every_shape_between_two_knots() -> None:
    shapes = {knot["shape"] for case in CASES for knot in case["knots"][:-1]}
    assert shapes == {shape.value for shape in Shape}
