"""H: the one hash that every order in Loadmaster comes from.

H folds its arguments with the splitmix64 finalizer. All arithmetic is modulo 2**64; negative arguments are taken modulo
2**64 as well:

    mix(z):    z = z + 0x9E3779B97F4A7C15
               z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
               z = (z ^ (z >> 27)) * 0x94D049BB133111EB
               return z ^ (z >> 31)

    H(seed)               = mix(seed)
    H(seed, a, ..., y, z) = mix(H(seed, a, ..., y) ^ z)

mix is a bijection, so for a fixed prefix different last arguments never collide. The tests hold ten test vectors.

# N = number of values of the last argument
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1
_GAMMA, _MUL_A, _MUL_B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _mix(z: int) -> int:
    z = (z + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * _MUL_A) & _MASK
    z = ((z ^ (z >> 27)) * _MUL_B) & _MASK
    return z ^ (z >> 31)


def fold(seed: int, *args: int) -> int:
    """H(seed, *args) as an integer in [0, 2**64)."""
    state = _mix(seed & _MASK)
    for arg in args:
        state = _mix(state ^ (arg & _MASK))
    return state


def fold_array(seed: int, *args: int, last_N: npt.NDArray[np.generic]) -> UInt64Array:
    """H(seed, *args, x) for each x of `last_N`; equal to `fold`, value for value.

    Args:
        seed: Any integer.
        args: What comes before the last argument.
        last_N: Shape (N,), an integer dtype; signed values are taken modulo 2**64.

    Returns:
        Shape (N,), uint64.
    """
    z = np.asarray(last_N).astype(np.uint64) ^ np.uint64(fold(seed, *args))
    z = z + np.uint64(_GAMMA)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MUL_A)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MUL_B)
    hashed: UInt64Array = z ^ (z >> np.uint64(31))
    return hashed


def name_key(name: str) -> int:
    """A source's key in H: the first 8 bytes of the SHA-256 of its name (UTF-8), big endian."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
