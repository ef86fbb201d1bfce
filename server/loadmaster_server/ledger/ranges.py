"""A step's pieces as what the accounts take: stretches of whole samples, and cut pieces one by one.

# N = pieces, M = cut pieces
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmaster_flight.wire.step_plan import WHOLE, Pieces

from ..planning.origins import Origins

UNKNOWN = -1


class Place(NamedTuple):
    """A block of a source in an epoch, and the lane that takes it."""

    source: int
    epoch: int
    lane: int
    shard: int
    block: int

    @property
    def shard_key(self) -> tuple[int, int, int]:
        """Without epoch and lane."""
        return self.source, self.shard, self.block

    @property
    def words(self) -> str:
        """For a sentence."""
        return f"source {self.source} epoch {self.epoch} lane {self.lane} shard {self.shard} block {self.block}"


class Stretch(NamedTuple):
    """Whole samples at positions [start, stop) of a place, all drawn at one step (UNKNOWN: not kept)."""

    place: Place
    start: int
    stop: int
    drawn_at: int


class CutPiece(NamedTuple):
    """Tokens [first, stop) of the sample at a position; `sample_tokens` is UNKNOWN where its length was not kept."""

    place: Place
    pos: int
    first: int
    stop: int
    sample_tokens: int
    drawn_at: int


_PLACE = ("source", "epoch", "lane", "shard", "block")


def split_pieces(pieces: Pieces, origins: Origins | None) -> tuple[list[Stretch], list[CutPiece]]:
    """Stretches and cut pieces of a step, each in the plan's order."""
    num = len(pieces)
    drawn_N = np.full(num, UNKNOWN, np.int64) if origins is None else origins.drawn_N
    is_cut_N = pieces.num_tokens != WHOLE
    whole_N, cut_M = np.flatnonzero(~is_cut_N), np.flatnonzero(is_cut_N)
    tokens_M = np.full(len(cut_M), UNKNOWN) if origins is None else origins.sample_tokens_M
    return _stretches(pieces.take(whole_N), drawn_N[whole_N]), _cut_pieces(pieces.take(cut_M), drawn_N[cut_M], tokens_M)


def _stretches(p: Pieces, drawn_N: np.ndarray) -> list[Stretch]:
    if not len(p):
        return []
    goes_on = (p.pos[1:] == p.pos[:-1] + 1) & (drawn_N[1:] == drawn_N[:-1])
    for name in _PLACE:
        column = getattr(p, name)
        goes_on &= column[1:] == column[:-1]
    first_R = np.flatnonzero(np.append(True, ~goes_on))
    last_R = np.append(first_R[1:], len(p)) - 1
    places = zip(*(getattr(p, name)[first_R].tolist() for name in _PLACE), strict=True)
    spans = zip(p.pos[first_R].tolist(), (p.pos[last_R] + 1).tolist(), drawn_N[first_R].tolist(), strict=True)
    return [Stretch(Place(*place), *span) for place, span in zip(places, spans, strict=True)]


def _cut_pieces(p: Pieces, drawn_M: np.ndarray, tokens_M: np.ndarray) -> list[CutPiece]:
    places = zip(*(getattr(p, name).tolist() for name in _PLACE), strict=True)
    stop_M = p.first_token + p.num_tokens
    columns = (p.pos, p.first_token, stop_M, tokens_M, drawn_M)
    rests = zip(*(column.tolist() for column in columns), strict=True)
    return [CutPiece(Place(*place), *rest) for place, rest in zip(places, rests, strict=True)]
