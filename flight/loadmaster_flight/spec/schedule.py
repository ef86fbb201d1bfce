"""Curves over steps: a list of knots, and the one rule that evaluates them."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from .model import SpecModel

LIMIT = 1 << 53
"""Steps and values are below this, so that every reader of JSON has the same numbers."""


class Shape(StrEnum):
    """How a curve goes from a knot to the next one."""

    STEP = "step"
    LINEAR = "linear"
    COSINE = "cosine"


class Knot(SpecModel):
    """The value at a step, and the way to the next knot."""

    at: Annotated[int, Field(ge=0, lt=LIMIT)]
    """Step of the knot."""
    value: Annotated[float, Field(ge=0, lt=LIMIT)]
    """Value of the curve at that step."""
    shape: Shape = Shape.STEP
    """The way to the next knot."""


class Ramp(SpecModel):
    """A curve over steps. Before the first knot it has the first value, after the last one the last value."""

    knots: Annotated[tuple[Knot, ...], Field(json_schema_extra={"minItems": 1})]
    """At least one, in ascending order of their steps."""

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, value: object) -> object:
        """A bare number is a constant; a list is its knots. YAML reads 1e-4 as text, so numbers in text count too."""
        if isinstance(value, (dict, Ramp)):
            return value
        if isinstance(value, list):
            return {"knots": value}
        number = _as_number(value)
        if number is None:
            raise ValueError(f"must be a number or a list of knots, got {value!r}")
        return {"knots": [{"at": 0, "value": number}]}

    @model_validator(mode="after")
    def _ascending(self) -> Ramp:
        if not self.knots:  # not by min_length: a knot that is wrong would be said to be missing, too
            raise ValueError("must have at least 1 item")
        steps = [knot.at for knot in self.knots]
        for before, after in itertools.pairwise(steps):
            if after <= before:
                raise ValueError(f"knots must have ascending 'at', got {before} then {after}")
        return self

    def at(self, step: int) -> float:
        """The curve's value at a step.

        Between knots a and b, with x = (step - a.at) / (b.at - a.at): step: a; linear: a + (b - a) x;
        cosine: a + (b - a) (1 - cos(pi x)) / 2.
        """
        after = bisect_right(self.knots, step, key=_step_of)
        if after == 0 or after == len(self.knots):
            return self.knots[after - (after > 0)].value
        a, b = self.knots[after - 1], self.knots[after]
        return _between(a, b, (step - a.at) / (b.at - a.at))


def _as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:  # an integer beyond all floats: refused as not finite, as the same in text is
        return math.inf


def _step_of(knot: Knot) -> int:
    return knot.at


def _between(a: Knot, b: Knot, x: float) -> float:
    if a.shape is Shape.STEP:
        return a.value
    share = x if a.shape is Shape.LINEAR else (1 - math.cos(math.pi * x)) / 2
    return a.value + (b.value - a.value) * share
