"""What a placement must keep to, as the compiled functions see it."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Caps of a bin and the weight of its cost in a pipeline.

    Attributes:
        per_rank: M, bins of a rank.
        capacity: Room of a bin, in the unit of the sizes.
        max_docs: Pieces that a bin may hold.
        extra: pp - 1: the stages that wait for the costliest microbatch of a rank.
        mean: Mean cost of a bin.
    """

    per_rank: int
    capacity: int
    max_docs: int
    extra: float
    mean: float
