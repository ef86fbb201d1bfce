"""Into how many partitions a source is cut, so that more loaders can share it without moving what they have."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..store import LeaseRecord


class Slot(NamedTuple):
    """Partition k of `slots` of a source: lanes l with l mod slots = k."""

    run: str
    source: int
    k: int
    slots: int


def slots_of(share: float, lanes: int, num_loaders: int, before: int | None) -> int:
    """Number of partitions P = min(lanes, ceil(share * loaders)), or what it was where that is enough.

    Where it was less, it becomes a multiple of that (or the number of lanes): every new partition lies in an old one.

    Args:
        share: Of the mixture, in [0, 1].
        lanes: Of the source.
        num_loaders: Loaders that may own something.
        before: Partitions that the source is cut into now; None: it is not.
    """
    wanted = min(lanes, max(1, math.ceil(share * num_loaders - 1e-9)))
    if before is None or before > lanes:
        return wanted
    return before if wanted <= before else min(lanes, math.ceil(wanted / before) * before)


def slots_before(leases: Iterable[LeaseRecord]) -> dict[tuple[str, int], int]:
    """Number of partitions by run and source, as leases have it."""
    return {(lease.run, lease.source): lease.slots for lease in leases}
