"""What all ranks of a generation have acknowledged, from what constructors say of theirs.

# W = ranks of the generation
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadmaster_flight.spec.mesh import TpMode
from loadmaster_flight.wire.errors import BadRequestError

from ..store import GenerationRecord


class Progress:
    """Cumulative acknowledgements of one generation, rank by rank, so that a rank may change its constructor.

    A rank of which nothing was heard counts as the generation's stored acknowledgement; one that does not fetch, as
    others hand it its batches, counts not at all. Not thread-safe.
    """

    def __init__(self, generation: GenerationRecord, tp_mode: TpMode) -> None:
        self.stored = generation.acknowledged
        """The common acknowledgement that the store has."""
        self._fetches_W = generation.fetching(tp_mode)
        self._acknowledged_W = np.full(generation.world_size, generation.acknowledged, np.int64)

    def note(self, ranks: Sequence[int], steps: Sequence[int]) -> None:
        """Each of these ranks has acknowledged all steps below its own of `steps`. An older word changes nothing.

        Raises:
            BadRequestError: The generation has no such rank, or steps are missing.
        """
        num_ranks = len(self._acknowledged_W)
        if wrong := [rank for rank in ranks if not 0 <= rank < num_ranks]:
            raise BadRequestError(f"ranks must be in [0, {num_ranks}), got {wrong[0]}")
        if len(ranks) != len(steps):
            raise BadRequestError(f"acknowledged must have a step for each of {len(ranks)} ranks, got {len(steps)}")
        np.maximum.at(self._acknowledged_W, np.asarray(ranks, np.int64), np.asarray(steps, np.int64))

    @property
    def common(self) -> int:
        """All ranks have acknowledged the steps below this one."""
        return int(self._acknowledged_W[self._fetches_W].min())
