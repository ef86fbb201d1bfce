"""When a rank is waited for, and how that is said: the same words in errors, in the API and in the shell."""

from __future__ import annotations

from collections.abc import Iterable

BEAT_S = 2.0
"""A rank that has nothing to say says so this often: that its training step is long is no silence."""
SILENT_S = 5.0
"""Of a rank that is silent for this long one says when it was last seen; of one that moves, at which step it is."""
MAX_NAMED = 8
PLANNER_URL = "PLANNER_URL"
"""In sentences of a planner, which cannot know under which address it is reached: who reads them puts it in."""


def tell_rank(rank: int, *, step: int, seen_s: float, moved_s: float, has_left: bool) -> str:
    """One rank that others wait for.

    Args:
        rank: Global rank.
        step: It has consumed the steps before this one.
        seen_s: Seconds since it was last heard of.
        moved_s: Seconds since it last consumed a step.
        has_left: Whether it closed its stream.
    """
    if has_left:
        return f"rank {rank}, which closed its stream at step {step}"
    if seen_s >= SILENT_S:
        return f"rank {rank}, last seen {seen_s:.0f} s ago"
    return f"rank {rank}, which is at step {step} for {moved_s:.0f} s"


def tell_ranks(told: Iterable[str]) -> str:
    """Several of `tell_rank` in one line; the first few, and how many there are besides."""
    found = list(told)
    rest = len(found) - MAX_NAMED
    return "; ".join(found[:MAX_NAMED]) + (f"; and {rest} more" if rest > 0 else "")
