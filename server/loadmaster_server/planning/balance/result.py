"""What a balance says of itself.

# N = pieces
"""

from __future__ import annotations

from dataclasses import dataclass

from ..cost import Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """Where every piece of a step goes, and how even that is.

    Attributes:
        bin_N: Shape (N,), int64, rank * M + m.
        method: How the placement was found: "packed", the packed bins dealt out to the ranks; "lpt"; "repaired", the
            packed bins changed piece by piece because LPT could not place every piece or was worse; "padded" for equal
            counts. With groups the last of these, in the order lpt, packed, repaired, that any of them needed.
        rank_max_over_mean: Time of the slowest rank over the mean.
        rank_bound: No placement has a smaller `rank_max_over_mean`.
        microbatch_max_over_mean: Cost of the costliest microbatch over the mean.
        microbatch_bound: No placement has a smaller `microbatch_max_over_mean`.
    """

    bin_N: Int64Array
    method: str
    rank_max_over_mean: float
    rank_bound: float
    microbatch_max_over_mean: float
    microbatch_bound: float
