"""Repair by pieces: one moves into room of another bin, or goes for several of about the same size together.

# N = pieces, B = bins, D = ranks, M = bins of a rank
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiled import compiled
from ..cost import Int64Array
from .board import Bins, Pieces, move_piece, recount, time_with

LEAST_GAIN = 1e-5
LARGEST_TRIED = 6
MOST_TRIED = 24
STARTS = 12
MOST_INSIDE = 8
MOST_TAKEN = 64


class Offer(NamedTuple):
    """What a bin gives for a piece: number and costs of its pieces together."""

    num: int
    cost: float


class Trade(NamedTuple):
    """A piece, and where in another bin the choice of those that it goes for starts."""

    piece: int
    start: int


@compiled
def move_best(bins: Bins, pieces: Pieces, slow: int, fast: int) -> bool:
    """Move the piece that makes the later of two ranks earliest; whether any did."""
    limits = bins.limits
    best = bins.key_D[slow] - LEAST_GAIN * limits.mean
    best_piece, best_bin = -1, -1
    for b in bins.bins_DM[fast]:
        room = limits.capacity - pieces.used_B[b]
        if room <= 0 or pieces.docs_B[b] >= limits.max_docs:
            continue
        for a in bins.bins_DM[slow]:
            i = pieces.first_B[a] if pieces.docs_B[a] > 1 else -1
            while i >= 0:
                if pieces.size_N[i] <= room:
                    cost = pieces.cost_N[i]
                    later = max(
                        time_with(bins, slow, a, bins.cost_B[a] - cost), time_with(bins, fast, b, bins.cost_B[b] + cost)
                    )
                    if later < best:
                        best, best_piece, best_bin = later, i, b
                i = pieces.next_N[i]
    if best_piece < 0:
        return False
    move_piece(pieces, bins, best_piece, best_bin)
    recount(bins, slow)
    recount(bins, fast)
    return True


@compiled
def trade_best(bins: Bins, pieces: Pieces, slow: int, fast: int) -> bool:
    """Exchange one of the slow rank's largest pieces for some of a bin of the fast rank; whether any gained."""
    best = bins.key_D[slow] - LEAST_GAIN * bins.limits.mean
    found, taken = Trade(-1, -1), np.empty(MOST_TAKEN, np.int64)
    for a in bins.bins_DM[slow]:
        i, tried = pieces.first_B[a], 0
        while i >= 0 and tried < LARGEST_TRIED and bins.offers_left[0] > 0:
            for b in bins.bins_DM[fast]:
                start = first_below(pieces, b, pieces.size_N[i])
                for _ in range(STARTS):
                    if start < 0:
                        break
                    offer = offer_of(bins, pieces, i, b, start, taken)
                    gain = pieces.cost_N[i] - offer.cost
                    if offer.num > 0 and gain > 0:
                        later = max(
                            time_with(bins, slow, a, bins.cost_B[a] - gain),
                            time_with(bins, fast, b, bins.cost_B[b] + gain),
                        )
                        if later < best:
                            best, found = later, Trade(i, start)
                    start = pieces.next_N[start]
            i, tried = pieces.next_N[i], tried + 1
    if found.piece < 0:
        return False
    exchange(bins, pieces, found, taken)
    recount(bins, slow)
    recount(bins, fast)
    return True


@compiled
def first_below(pieces: Pieces, b: int, size: int) -> int:
    """Largest piece of a bin that is smaller than `size`; -1 if there is none."""
    i: int = pieces.first_B[b]
    while i >= 0 and pieces.size_N[i] >= size:
        i = pieces.next_N[i]
    return i


@compiled
def offer_of(bins: Bins, pieces: Pieces, i: int, b: int, start: int, taken: Int64Array) -> Offer:
    """Pieces of bin `b` that fit where piece `i` was and leave room for it.

    They are chosen greedily from `start` on, the largest that still fits first, into `taken`; num 0 when they do not
    do.
    """
    bins.offers_left[0] -= 1
    a, size = pieces.bin_N[i], pieces.size_N[i]
    room = bins.limits.capacity - pieces.used_B[a] + size
    least = size - (bins.limits.capacity - pieces.used_B[b])
    num, cost, j = 0, 0.0, start
    total = 0
    while j >= 0 and num < MOST_TAKEN and total < room:
        if total + pieces.size_N[j] <= room:
            taken[num] = j
            num += 1
            total += pieces.size_N[j]
            cost += pieces.cost_N[j]
        j = pieces.next_N[j]
    is_wrong = total < least or pieces.docs_B[a] - 1 + num > bins.limits.max_docs
    return Offer(0, 0.0) if is_wrong else Offer(num, cost)


@compiled
def exchange(bins: Bins, pieces: Pieces, trade: Trade, taken: Int64Array) -> None:
    """Do what `offer_of` offered."""
    a, b = pieces.bin_N[trade.piece], pieces.bin_N[trade.start]
    offer = offer_of(bins, pieces, trade.piece, b, trade.start, taken)
    move_piece(pieces, bins, trade.piece, b)
    for k in range(offer.num):
        move_piece(pieces, bins, taken[k], a)


@compiled
def level_inside(bins: Bins, pieces: Pieces, target: float) -> None:
    """Lower the costliest bin of each rank by exchanges inside the rank, until it is `target`, or nothing gains."""
    for rank in range(len(bins.key_D)):
        for _ in range(MOST_INSIDE * bins.limits.per_rank):
            a = bins.bins_DM[rank, 0]
            for b in bins.bins_DM[rank]:
                if bins.cost_B[b] > bins.cost_B[a]:
                    a = b
            if bins.cost_B[a] <= target or not lower(bins, pieces, a, target):
                break


@compiled
def lower(bins: Bins, pieces: Pieces, a: int, target: float) -> bool:
    """Exchange a piece of bin `a` with another bin of its rank so that the costlier of both is cheap enough.

    The first exchange that meets the target is done, or else the best one; whether there was any.
    """
    best = bins.cost_B[a] - LEAST_GAIN * bins.limits.mean
    found, taken = Trade(-1, -1), np.empty(MOST_TAKEN, np.int64)
    i, tried = pieces.first_B[a], 0
    while i >= 0 and tried < MOST_TRIED and best > target and bins.offers_left[0] > 0:
        for b in bins.bins_DM[bins.rank_B[a]]:
            if b == a or bins.cost_B[a] + bins.cost_B[b] >= 2 * best:
                continue
            start = first_below(pieces, b, pieces.size_N[i])
            for _ in range(STARTS):
                if start < 0 or best <= target:
                    break
                offer = offer_of(bins, pieces, i, b, start, taken)
                gain = pieces.cost_N[i] - offer.cost
                costlier = max(bins.cost_B[a] - gain, bins.cost_B[b] + gain)
                if offer.num > 0 and gain > 0 and costlier < best:
                    best, found = costlier, Trade(i, start)
                start = pieces.next_N[start]
        i, tried = pieces.next_N[i], tried + 1
    if found.piece < 0:
        return False
    exchange(bins, pieces, found, taken)
    recount(bins, bins.rank_B[a])
    return True
