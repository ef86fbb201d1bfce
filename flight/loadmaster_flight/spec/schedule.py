"""Curves over steps: a list of knots, and the one rule that evaluates them."""

from __future__ import annotations

import itertools
import math
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from .model import SpecModel


class Shape(StrEnum):
    """How a curve goes from a knot to the next one."""

    STEP = "step"
    LINEAR = "linear"
    COSINE = "cosine"


class Knot(SpecModel):
    """The value at a step, and the way to the next knot."""

    at: Annotated[int, Field(ge=0)]
    """Step of the knot."""
    value: Annotated[float, Field(ge=0)]
    """Value of the curve at that step."""
    shape: Shape = Shape.STEP
    """The way to the next knot."""


class Ramp(SpecModel):
    """A curve over steps. Before the first knot it has the first value, after the last one the last value."""

    knots: Annotated[tuple[Knot, ...], Field(min_length=1)]
    """In ascending order of their steps."""

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
        if step <= self.knots[0].at:
            return self.knots[0].value
        for a, b in zip(self.knots, self.knots[1:], strict=False):
            if step < b.at:
                return _between(a, b, (step - a.at) / (b.at - a.at))
        return self.knots[-1].value


def _as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _between(a: Knot, b: Knot, x: float) -> float:
    if a.shape is Shape.STEP:
        return a.value
    share = x if a.shape is Shape.LINEAR else (1 - math.cos(math.pi * x)) / 2
    return a.value + (b.value - a.value) * share
