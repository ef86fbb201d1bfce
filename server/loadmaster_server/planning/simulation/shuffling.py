"""How well the lanes of a source shuffle it.

# N = samples of a source in a step
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..cost import Int64Array


@dataclass(slots=True, kw_only=True)
class ShuffleQuality:
    """Of one source: from how many blocks the samples of a step come, as if all of these had equal shares.

    That is one over the probability that two samples of a step come from the same block (the inverse of Simpson's
    index; Simpson 1949, Nature 163, 688), over all pairs of all steps. A perfect shuffle takes each sample from any
    block: its number is that of all blocks. With L lanes it is about L, as one block of each lane is open at a time.

    Attributes:
        lanes: L.
        num_blocks: Blocks of the source; None: not known, or endless.
    """

    lanes: int
    num_blocks: int | None = None
    _num_pairs: int = 0
    _num_same: int = 0
    _most_blocks: int = 0

    def add(self, shard_N: Int64Array, block_N: Int64Array) -> None:
        """Take the blocks of one step's samples."""
        num = len(shard_N)
        label_N = shard_N * (int(block_N.max(initial=0)) + 1) + block_N
        _, count = np.unique(label_N, return_counts=True)
        self._num_pairs += num * (num - 1)
        self._num_same += int((count * (count - 1)).sum())
        self._most_blocks = max(self._most_blocks, len(count))

    @property
    def effective_blocks(self) -> float | None:
        """None before a step has had two samples. Where no two came from the same block: the most in a step."""
        if not self._num_pairs:
            return None
        return self._num_pairs / self._num_same if self._num_same else float(self._most_blocks)

    @property
    def share_of_perfect(self) -> float | None:
        """Of what a perfect shuffle would give; None where that or the number of blocks is not known."""
        found = self.effective_blocks
        return min(1.0, found / self.num_blocks) if found is not None and self.num_blocks else None
