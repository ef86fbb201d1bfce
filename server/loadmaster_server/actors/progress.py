"""What all ranks of a generation have acknowledged, from what constructors say of theirs.

# W = ranks of the generation
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..store import GenerationRecord


class Progress:
    """Cumulative acknowledgements of one generation, rank by rank, so that a rank may change its constructor.

    A rank of which nothing was heard counts as the generation's stored acknowledgement. Not thread-safe.
    """

    def __init__(self, generation: GenerationRecord) -> None:
        self._acknowledged_W = np.full(generation.world_size, generation.acknowledged, np.int64)

    def note(self, ranks: Sequence[int], step: int) -> None:
        """These ranks have acknowledged all steps below `step`. An older word changes nothing."""
        index = np.asarray(ranks, np.int64)
        self._acknowledged_W[index] = np.maximum(self._acknowledged_W[index], step)

    @property
    def common(self) -> int:
        """All ranks have acknowledged the steps below this one."""
        return int(self._acknowledged_W.min())
