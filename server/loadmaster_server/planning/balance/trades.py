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
SHARES = 4
MOST_TAKEN = 64


class Offer(NamedTuple):
    """What a bin gives for a piece: number, sizes and costs of its pieces together."""

    num: int
    size: int
    cost: float


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
    best_piece, best_bin, best_share = -1, -1, 0
    taken = np.empty(MOST_TAKEN, np.int64)
    for a in bins.bins_DM[slow]:
        i, tried = pieces.first_B[a], 0
        while i >= 0 and tried < LARGEST_TRIED:
            for b in bins.bins_DM[fast]:
                for share in range(SHARES):
                    offer = offer_of(bins, pieces, i, b, share, taken)
                    gain = pieces.cost_N[i] - offer.cost
                    if offer.num == 0 or gain <= 0:
                        continue
                    later = max(
                        time_with(bins, slow, a, bins.cost_B[a] - gain), time_with(bins, fast, b, bins.cost_B[b] + gain)
                    )
                    if later < best:
                        best, best_piece, best_bin, best_share = later, i, b, share
            i, tried = pieces.next_N[i], tried + 1
    if best_piece < 0:
        return False
    exchange(bins, pieces, best_piece, best_bin, best_share, taken)
    recount(bins, slow)
    recount(bins, fast)
    return True


@compiled
def offer_of(bins: Bins, pieces: Pieces, i: int, b: int, share: int, taken: Int64Array) -> Offer:
    """Pieces of bin `b`, none larger than a share of piece `i`, that fit where it was and leave room for it.

    They are chosen greedily, the largest that still fits first, into `taken`; num 0 when they do not do.
    """
    a, size = pieces.bin_N[i], pieces.size_N[i]
    room_a = bins.limits.capacity - pieces.used_B[a] + size
    least = size - (bins.limits.capacity - pieces.used_B[b])
    largest = size - 1 if share == 0 else size >> share
    num, total, cost = 0, 0, 0.0
    j = pieces.first_B[b]
    while j >= 0 and num < MOST_TAKEN:
        if pieces.size_N[j] <= largest and total + pieces.size_N[j] <= room_a:
            taken[num] = j
            num += 1
            total += pieces.size_N[j]
            cost += pieces.cost_N[j]
        j = pieces.next_N[j]
    is_wrong = total < least or pieces.docs_B[a] - 1 + num > bins.limits.max_docs or num == 0
    return Offer(0, 0, 0.0) if is_wrong else Offer(num, total, cost)


@compiled
def exchange(bins: Bins, pieces: Pieces, i: int, b: int, share: int, taken: Int64Array) -> None:
    """Do what `offer_of` offered."""
    a = pieces.bin_N[i]
    offer = offer_of(bins, pieces, i, b, share, taken)
    move_piece(pieces, bins, i, b)
    for k in range(offer.num):
        move_piece(pieces, bins, taken[k], a)


@compiled
def level_inside(bins: Bins, pieces: Pieces, target: float, most_rounds: int) -> None:
    """Lower the costliest bin by exchanges with the bins of its rank, until it is `target`, or nothing gains."""
    for _ in range(most_rounds):
        a = int(np.argmax(bins.cost_B))
        if bins.cost_B[a] <= target or not lower(bins, pieces, a):
            break


@compiled
def lower(bins: Bins, pieces: Pieces, a: int) -> bool:
    """Exchange a piece of bin `a` with another bin of its rank so that the costlier of both is cheapest."""
    best = bins.cost_B[a] - LEAST_GAIN * bins.limits.mean
    best_piece, best_bin, best_share = -1, -1, 0
    taken = np.empty(MOST_TAKEN, np.int64)
    i, tried = pieces.first_B[a], 0
    while i >= 0 and tried < 4 * LARGEST_TRIED:
        for b in bins.bins_DM[bins.rank_B[a]]:
            for share in range(SHARES if b != a else 0):
                offer = offer_of(bins, pieces, i, b, share, taken)
                gain = pieces.cost_N[i] - offer.cost
                costlier = max(bins.cost_B[a] - gain, bins.cost_B[b] + gain)
                if offer.num > 0 and gain > 0 and costlier < best:
                    best, best_piece, best_bin, best_share = costlier, i, b, share
        i, tried = pieces.next_N[i], tried + 1
    if best_piece < 0:
        return False
    exchange(bins, pieces, best_piece, best_bin, best_share, taken)
    recount(bins, bins.rank_B[a])
    return True
