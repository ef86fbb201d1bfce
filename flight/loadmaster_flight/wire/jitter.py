"""Waits of many processes that do not end at once."""

from __future__ import annotations

import random

_RANDOM = random.SystemRandom()
"""Of no state: the numbers that a training process draws from `random` are its own, and forks do not wait alike."""


def jittered(wait_s: float) -> float:
    """Between half of it and all of it."""
    return wait_s * _RANDOM.uniform(0.5, 1.0)
