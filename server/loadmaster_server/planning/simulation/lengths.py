"""Stated distributions of document lengths: `lognormal:700,1.2`, `pareto:1.15,400`, `bimodal`.

# N = documents
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from loadmaster_flight.wire.errors import BadRequestError

from ..cost import Float64Array, Int64Array

LONGEST = 131_072
Draw = Callable[..., Float64Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of tokens per document, cut at `longest`.

    Attributes:
        name: As it was stated, with all parameters.
    """

    name: str
    draw: Draw
    parameters: tuple[float, ...]
    longest: int = LONGEST

    def __call__(self, rng: np.random.Generator, num: int) -> Int64Array:
        """Lengths of `num` documents, int64 (num,), in [1, longest]."""
        drawn_N = self.draw(rng, num, *self.parameters)
        return np.clip(np.rint(drawn_N), 1, self.longest).astype(np.int64)

    @staticmethod
    def parse(text: str) -> Lengths:
        """The distribution `kind[:parameter,...]`; parameters that are left out have their defaults.

        Raises:
            BadRequestError: There is no such kind, or its parameters are not positive numbers.
        """
        kind, _, rest = text.partition(":")
        if kind not in _KINDS:
            raise BadRequestError(f"lengths must be one of {', '.join(EXAMPLES)}, got {text!r}")
        draw, defaults, longest = _KINDS[kind]
        given = [_positive(part, text) for part in rest.split(",")] if rest else []
        if len(given) > len(defaults):
            raise BadRequestError(f"lengths {kind} must have at most {len(defaults)} parameters, got {text!r}")
        parameters = (*given, *defaults[len(given) :])
        name = f"{kind}:{','.join(f'{value:g}' for value in parameters)}"
        return Lengths(name=name, draw=draw, parameters=parameters, longest=longest)

    @staticmethod
    def observed(name: str, tokens_N: Int64Array) -> Lengths:
        """Lengths that were measured, each as likely as it was frequent. int64 (N,), at least one."""

        def draw(rng: np.random.Generator, num: int) -> Float64Array:
            return rng.choice(tokens_N, num).astype(np.float64)

        return Lengths(name=name, draw=draw, parameters=(), longest=int(tokens_N.max()))


def _positive(part: str, text: str) -> float:
    try:
        value = float(part)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise BadRequestError(f"lengths must have parameters that are numbers above 0, got {part!r} in {text!r}")
    return value


def _lognormal(rng: np.random.Generator, num: int, median: float, sigma: float) -> Float64Array:
    return rng.lognormal(math.log(median), sigma, num)


def _pareto(rng: np.random.Generator, num: int, shape: float, least: float) -> Float64Array:
    return np.asarray(least * (1.0 - rng.random(num)) ** (-1.0 / shape), np.float64)


def _bimodal(rng: np.random.Generator, num: int, short: float, long: float, share: float) -> Float64Array:
    """Medians of the short and the long documents, and the share of the long ones."""
    is_long_N = rng.random(num) < share
    short_N, long_N = _lognormal(rng, num, short, 0.8), _lognormal(rng, num, long, 0.5)
    return np.where(is_long_N, long_N, short_N)


_KINDS: dict[str, tuple[Draw, tuple[float, ...], int]] = {
    "lognormal": (_lognormal, (700.0, 1.2), LONGEST),
    "pareto": (_pareto, (1.15, 400.0), LONGEST),
    "bimodal": (_bimodal, (400.0, 4000.0, 0.27), 24_000),
}
EXAMPLES = ("lognormal:700,1.2", "pareto:1.15,400", "bimodal:400,4000,0.27")
