"""What a document costs: a polynomial in its tokens, from a model's sizes or from measured times.

# N = documents, B = microbatches, K = coefficients
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_MANTISSA_BITS = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Cost of one document of l tokens: constant + linear * l + quadratic * l**2; FLOPs, bytes or seconds.

    Raises:
        ValueError: A coefficient is negative or not finite, or all are 0; names it.
    """

    linear: float
    quadratic: float
    constant: float = 0.0

    def __post_init__(self) -> None:
        for name in ("linear", "quadratic", "constant"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and at least 0, got {value}")
        if self.linear == self.quadratic == self.constant == 0:
            raise ValueError("linear, quadratic and constant must not all be 0")

    @property
    def crossover(self) -> float:
        """Tokens at which the quadratic part costs as much as the linear one."""
        return self.linear / self.quadratic if self.quadratic else math.inf

    def __call__(self, tokens_N: npt.ArrayLike) -> Float64Array:
        """Cost of each document, float64 (N,)."""
        length_N = np.asarray(tokens_N, np.float64)
        return self.constant + self.linear * length_N + self.quadratic * length_N * length_N


DEFAULT_COST = CostModel(linear=65_514.0, quadratic=1.0)
"""Shape of a 12B dense decoder (hidden 5120, 36 layers, SwiGLU 13824, vocabulary 128256): crossover 65,514 tokens."""


def transformer_cost(
    hidden: int, layers: int, ffn: int, vocab: int, *, kv_hidden: int | None = None, swiglu: bool = True,
    causal: bool = True,
) -> CostModel:  # fmt: skip
    """FLOPs of forward and backward of one document in a dense decoder.

    A matrix of P weights costs 2P per token forward and twice that backward: 6P, with P = layers * (2h^2 + 2h*kv
    + 3hf) + vocab*h (2hf without a gate; the embedding look-up costs nothing). Scores and their product with the
    values are 2 * 2*h*l^2 a layer forward, 12*h*l^2 in all, half of it when causal. This is the count of Kaplan et al.
    2020 (arXiv 2001.08361, 6N per token) with the attention term of PaLM (arXiv 2204.02311, appendix B: 12*L*H*Q*T,
    which does not halve for causality).

    Args:
        hidden: Width h; heads times head size are taken to equal it.
        kv_hidden: Width of keys and of values, less than `hidden` with grouped queries.
        swiglu: The feed-forward part has a gate: three matrices, not two.
        causal: The kernel skips the masked half of the scores, as flash attention does.
    """
    kv = hidden if kv_hidden is None else kv_hidden
    _check_sizes(hidden=hidden, layers=layers, ffn=ffn, vocab=vocab, kv_hidden=kv)
    block = 2 * hidden * hidden + 2 * hidden * kv + (3 if swiglu else 2) * hidden * ffn
    scores = (6 if causal else 12) * hidden * layers
    return CostModel(linear=6.0 * (layers * block + vocab * hidden), quadratic=float(scores))


def vit_cost(hidden: int, layers: int, ffn: int | None = None, *, patch_dim: int = 0) -> CostModel:
    """FLOPs of forward and backward of one image (or frame) of l patches in a vision transformer (arXiv 2010.11929).

    As `transformer_cost` with full attention, two feed-forward matrices (4h wide unless given) and, for a vocabulary,
    the patch embedding of `patch_dim` numbers.
    """
    wide = 4 * hidden if ffn is None else ffn
    return transformer_cost(hidden, layers, wide, patch_dim, swiglu=False, causal=False)


def memory_cost(hidden: int, layers: int, *, vocab: int = 0, heads: int = 0, flash: bool = True) -> CostModel:
    """Bytes of activations of one document kept for the backward pass, at 16 bits, without recomputation.

    34*h a token and layer, and 5*heads*l^2 more where the scores are kept (Korthikanti et al. 2022, arXiv 2205.05198,
    eq. 1); logits in 16 and 32 bits are 6*vocab a token.
    """
    _check_sizes(hidden=hidden, layers=layers, vocab=vocab, heads=heads)
    kept = 0.0 if flash else 5.0 * heads * layers
    return CostModel(linear=34.0 * hidden * layers + 6.0 * vocab, quadratic=kept)


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        least = 0 if name in ("vocab", "heads") else 1
        if size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")


def refit(sizes: Sequence[npt.ArrayLike], seconds_B: npt.ArrayLike) -> CostModel:
    """Seconds per document from measured microbatches: least squares with no negative coefficient.

    The time of a microbatch is taken to be the sum over its documents, plus nothing. A coefficient that comes out
    negative is left out and the rest fitted again.

    Args:
        sizes: Tokens of the documents of each microbatch.
        seconds_B: Shape (B,), measured time of each.

    Raises:
        ValueError: Fewer than three microbatches, lengths that differ, or times that are not positive.
    """
    time_B = np.asarray(seconds_B, np.float64)
    if len(sizes) != len(time_B) or len(time_B) < 3:
        raise ValueError(f"refit needs at least 3 microbatches with one time each, got {len(sizes)} and {len(time_B)}")
    if not (np.isfinite(time_B).all() and (time_B > 0).all()):
        raise ValueError("seconds must be finite and more than 0")
    sums_BK = np.array([_power_sums(size) for size in sizes])
    constant, linear, quadratic = _nonnegative_fit(sums_BK, time_B)
    return CostModel(linear=linear, quadratic=quadratic, constant=constant)


def _power_sums(size: npt.ArrayLike) -> tuple[float, float, float]:
    tokens = np.asarray(size, np.float64)
    return float(tokens.size), float(tokens.sum()), float((tokens * tokens).sum())


def _nonnegative_fit(sums_BK: Float64Array, time_B: Float64Array) -> list[float]:
    """Coefficients of the columns; those that would be negative are 0."""
    scale_K = np.maximum(np.abs(sums_BK).max(axis=0), 1.0)
    kept = list(range(sums_BK.shape[1]))
    found = np.zeros(len(kept))
    while kept:
        fitted = np.linalg.lstsq(sums_BK[:, kept] / scale_K[kept], time_B, rcond=None)[0]
        if (fitted >= 0).all():
            found[kept] = fitted / scale_K[kept]
            break
        kept.pop(int(np.argmin(fitted)))
    return [float(x) for x in found]


def integer_costs(model: CostModel, tokens_N: npt.ArrayLike) -> Int64Array:
    """Cost of each document as an integer, so that sums do not depend on their order; see `to_integers`."""
    return to_integers(model(tokens_N))


def to_integers(cost_N: npt.ArrayLike) -> Int64Array:
    """Costs in a common unit, rounded, int64 (N,); any sum of them is below 2**53 and thus exact in a double, too.

    The unit is the power of two that N times the greatest cost asks for: it depends on nothing but the values, and
    scaling by it is exact.

    Raises:
        ValueError: A cost is negative, NaN or infinite; names the first such document.
    """
    value_N = np.asarray(cost_N, np.float64)
    is_wrong_N = ~(np.isfinite(value_N) & (value_N >= 0))
    if is_wrong_N.any():
        first = int(np.argmax(is_wrong_N))
        raise ValueError(f"cost must be finite and at least 0, got {value_N[first]} for document {first}")
    if not len(value_N):
        return np.zeros(0, np.int64)
    _, exponent = math.frexp(float(value_N.max()))
    bits = exponent + len(value_N).bit_length()
    return np.rint(np.ldexp(value_N, _MANTISSA_BITS - bits)).astype(np.int64)
