"""Which block of an archive a key was met in first, at 12 bytes a key.

# K = keys met, N = keys asked for
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class SeenKeys:
    """Keys by hash: two of a million keys have the same one in 1 of 30 million archives. Not thread-safe."""

    def __init__(self) -> None:
        self._hash_K = np.empty(0, np.uint64)
        self._block_K = np.empty(0, np.int32)

    def first_blocks(self, keys: Sequence[str], block: int) -> list[int]:
        """The block that each key was met in first, which is `block` for those that were not met before."""
        hash_N = np.array([_hash(key) for key in keys], np.uint64)
        place_N = np.searchsorted(self._hash_K, hash_N)
        known_N = np.append(self._hash_K, np.uint64(0))[place_N] == hash_N
        known_N &= place_N < len(self._hash_K)
        first_N = np.where(known_N, np.append(self._block_K, np.int32(0))[place_N], block)
        self._add(hash_N[~known_N], block)
        return [int(first) for first in first_N]

    def _add(self, hash_N: npt.NDArray[np.uint64], block: int) -> None:
        if len(hash_N):
            self._hash_K, first_K = np.unique(np.concatenate([self._hash_K, hash_N]), return_index=True)
            self._block_K = np.concatenate([self._block_K, np.full(len(hash_N), block, np.int32)])[first_K]


def _hash(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(errors="replace"), digest_size=8).digest(), "little")
