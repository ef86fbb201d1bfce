"""Simulation of steps on meshes that are not there: pure functions over arrays, no clock."""

from __future__ import annotations

from .figures import Evenness, Mesh, Timing, TokenBudget, evenness_of, limit_of, naive_timing, timing_of
from .lengths import Lengths
from .loaders import (
    LEFT,
    Against,
    as_read,
    cost_grid,
    encoder_time,
    fixed_count,
    images_at_home,
    next_fit,
)
from .made_up import StatedSource
from .memory import HostMemory, host_memory
from .pipeline import bubble_limit, finish_times, step_time
from .shuffling import ShuffleQuality
from .spreading import Spread, microbatch_floor, spread_context
from .stepping import SimulatedStep, Stepper

__all__ = [
    "LEFT",
    "Against",
    "Evenness",
    "HostMemory",
    "Lengths",
    "Mesh",
    "ShuffleQuality",
    "SimulatedStep",
    "Spread",
    "StatedSource",
    "Stepper",
    "Timing",
    "TokenBudget",
    "as_read",
    "bubble_limit",
    "cost_grid",
    "encoder_time",
    "evenness_of",
    "finish_times",
    "fixed_count",
    "host_memory",
    "images_at_home",
    "limit_of",
    "microbatch_floor",
    "naive_timing",
    "next_fit",
    "spread_context",
    "step_time",
    "timing_of",
]
