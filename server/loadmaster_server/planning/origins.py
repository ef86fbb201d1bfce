"""Where the pieces of a step come from, kept beside its plan: what the ledger tells of them later.

# N = pieces, S = sources, M = cut pieces, W = pieces that waited
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .columns import Int64Array
from .pieces import DRAWN_AT, SAMPLE_TOKENS, PieceTable
from .state import PlannerState

CREDIT_BITS = 30
"""Credits are kept in whole tokens; the planner's own have 2**-30 of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """What a plan does not say of its pieces.

    Attributes:
        credit_S: Shape (S,), int64, whole tokens owed to each source after the step's draw.
        drawn_N: Shape (N,), int64, the step that drew each piece.
        sample_tokens_M: Shape (M,), int64, length of the sample of each cut piece, in the plan's order.
    """

    credit_S: Int64Array
    drawn_N: Int64Array
    sample_tokens_M: Int64Array


def encode_origins(step: int, placed: PieceTable, state: PlannerState) -> dict[str, Any]:
    """What a plan does not say of its pieces, as JSON values: some bytes a source, and one or two a piece that waited.

    Args:
        step: The step.
        placed: Its pieces in the plan's order.
        state: After the step.
    """
    age_N = step - placed.values_NP[:, DRAWN_AT]
    waited_W = np.flatnonzero(age_N)
    cut_M = np.flatnonzero(placed.tokens_N != placed.values_NP[:, SAMPLE_TOKENS])
    return {
        "credit": [credit >> CREDIT_BITS for credit in state.credit_S],
        "waited": packed(np.concatenate([np.diff(waited_W, prepend=0), age_N[waited_W]])),
        "cut_of": placed.values_NP[cut_M, SAMPLE_TOKENS].tolist(),
    }


def decode_origins(step: int, num_pieces: int, summary: Mapping[str, Any]) -> Origins | None:
    """What `encode_origins` wrote into a step's summary; None for steps that were planned before it did.

    Raises:
        ValueError: It does not fit the step's pieces.
    """
    kept = summary.get("origins")
    if kept is None:
        return None
    delta_W, age_W = np.split(unpacked(kept["waited"]), 2)
    waited_W = np.cumsum(delta_W)
    if len(waited_W) and not 0 <= waited_W[0] <= waited_W[-1] < num_pieces:
        raise ValueError(f"waited must name pieces in [0, {num_pieces}), got {waited_W[0]}..{waited_W[-1]}")
    drawn_N = np.full(num_pieces, step, np.int64)
    drawn_N[waited_W] -= age_W
    return Origins(
        credit_S=np.array(kept["credit"], np.int64),
        drawn_N=drawn_N,
        sample_tokens_M=np.array(kept["cut_of"], np.int64),
    )


def packed(values: Int64Array) -> str:
    """Small whole numbers as text."""
    return base64.b64encode(zlib.compress(values.astype("<i4").tobytes(), 1)).decode() if len(values) else ""


def unpacked(text: str) -> Int64Array:
    """What `packed` took."""
    data = zlib.decompress(base64.b64decode(text)) if text else b""
    return np.frombuffer(data, "<i4").astype(np.int64)
