"""How one stream's build is at a moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLook:
    """What a builder has and has done.

    Attributes:
        acknowledged: All ranks served here have consumed the steps before this one.
        num_steps, max_steps: Steps that are built and kept, and the most that are.
        size_bytes, budget_bytes: Likewise their memory; None while the run's spec is not known.
        sent_batches, sent_bytes: To ranks so far.
        seen_s: Rank -> seconds since it was last heard of.
    """

    acknowledged: int
    num_steps: int
    max_steps: int
    size_bytes: int
    budget_bytes: int | None
    sent_batches: int
    sent_bytes: int
    seen_s: Mapping[int, float]
