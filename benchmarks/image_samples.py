"""Made-up samples of text and images for the step-time benchmark: tokens of each sample, patches of each image.

# N = samples, K = images, S = sources, D = dp ranks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
MOST_PATCHES = 16_384
MERGED = 4
"""Patches that become one token of the backbone (2 x 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples in the order read.

    Attributes:
        tokens_N: Shape (N,), int64, tokens of the backbone, images included.
        node_K: Shape (K,), int64, the sample of each image; ascending.
        patches_K: Shape (K,), int64.
    """

    tokens_N: Int64Array
    node_K: Int64Array
    patches_K: Int64Array

    def __len__(self) -> int:
        return len(self.tokens_N)

    def take(self, index: npt.NDArray[np.generic]) -> Samples:
        """The samples at `index` (positions or a mask), in that order, with their images."""
        at = np.arange(len(self))[index]
        count_N = np.bincount(self.node_K, minlength=len(self))
        first_N, taken = np.cumsum(count_N) - count_N, count_N[at]
        images = np.repeat(first_N[at] - (np.cumsum(taken) - taken), taken) + np.arange(taken.sum())
        return Samples(
            tokens_N=self.tokens_N[at],
            node_K=np.repeat(np.arange(len(at)), taken),
            patches_K=self.patches_K[images],
        )

    @staticmethod
    def concat(parts: Sequence[Samples]) -> Samples:
        """One after the other."""
        first = np.cumsum([0, *(len(part) for part in parts[:-1])])
        return Samples(
            tokens_N=np.concatenate([part.tokens_N for part in parts]),
            node_K=np.concatenate([part.node_K + at for part, at in zip(parts, first, strict=True)]),
            patches_K=np.concatenate([part.patches_K for part in parts]),
        )


Source = Callable[[np.random.Generator, int, int], Samples]
"""(generator, number of samples, longest sample in tokens) -> samples."""


def _samples(text_N: npt.ArrayLike, count_N: Int64Array, patches_K: npt.ArrayLike, longest: int) -> Samples:
    """Cut to the longest: images beyond it are left out, then the text is cut."""
    patches_K = np.clip(np.rint(patches_K), 64, MOST_PATCHES).astype(np.int64) // MERGED * MERGED
    node_K = np.repeat(np.arange(len(count_N)), count_N)
    merged_K = patches_K // MERGED
    total_K, before_N = np.cumsum(merged_K), np.append(0, np.cumsum(merged_K))[np.cumsum(count_N) - count_N]
    fits_K = total_K - before_N[node_K] <= longest
    node_K, patches_K = node_K[fits_K], patches_K[fits_K]
    image_N = np.bincount(node_K, patches_K // MERGED, len(count_N)).astype(np.int64)
    text_N = np.clip(np.rint(text_N), 16, None).astype(np.int64)
    tokens_N = np.clip(image_N + text_N, 1, np.maximum(longest, image_N))
    return Samples(tokens_N=tokens_N, node_K=node_K, patches_K=patches_K)


def text_only(rng: np.random.Generator, num: int, longest: int) -> Samples:
    """Web documents, median 700 tokens."""
    return _samples(rng.lognormal(np.log(700), 1.2, num), np.zeros(num, np.int64), np.zeros(0), longest)


def captioned(rng: np.random.Generator, num: int, longest: int) -> Samples:
    """One or two images of about a thousand patches with a caption."""
    count_N = rng.integers(1, 3, num)
    return _samples(rng.lognormal(np.log(120), 0.8, num), count_N, _patches(rng, count_N, 1024, 0.7), longest)


def interleaved(rng: np.random.Generator, num: int, longest: int) -> Samples:
    """Documents with a long tail of images, up to 48."""
    count_N = np.minimum(1 + np.floor((1 - rng.random(num)) ** (-1 / 1.1) - 1), 48).astype(np.int64)
    return _samples(rng.lognormal(np.log(900), 1.0, num), count_N, _patches(rng, count_N, 1400, 0.9), longest)


def video(rng: np.random.Generator, num: int, longest: int) -> Samples:
    """16 to 96 frames of about 600 patches, each frame encoded by itself."""
    count_N = rng.integers(16, 97, num)
    return _samples(rng.lognormal(np.log(150), 0.6, num), count_N, _patches(rng, count_N, 600, 0.2), longest)


def mixed(sources: Sequence[Source], shares_S: Sequence[float]) -> Source:
    """Samples of several sources in random order, shares counted in samples."""

    def draw(rng: np.random.Generator, num: int, longest: int) -> Samples:
        number_S = rng.multinomial(num, np.asarray(shares_S) / np.sum(shares_S))
        parts = [source(rng, int(n), longest) for source, n in zip(sources, number_S, strict=True)]
        return Samples.concat(parts).take(rng.permutation(num))

    return draw


def _patches(rng: np.random.Generator, count_N: Int64Array, median: float, sigma: float) -> npt.NDArray[np.float64]:
    return rng.lognormal(np.log(median), sigma, int(count_N.sum()))


MILD = mixed([text_only, captioned], [0.4, 0.6])
LONG_TAIL = mixed([text_only, interleaved], [0.3, 0.7])
VIDEO_LIKE = mixed([text_only, captioned, video], [0.35, 0.6, 0.05])
FOUR_SOURCES = (text_only, captioned, interleaved, video)
