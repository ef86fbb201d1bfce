"""The fair choice of the next source, draw by draw, over arrays.

# S = sources, K = samples on offer, M = pieces drawn
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadmaster_flight.wire.errors import InternalError

from .columns import Int64Array
from .compiled import HAS_NUMBA, compiled, interpreted
from .heaps import pop_due, pop_ready, push_due, push_ready

ONE = 1 << 30
"""A weight of 1 in fixed point; also the credit that one unit (a token or a sample) costs."""
MOST_PIECES = 1 << 18
COMPILE_FROM = 4096
"""Samples on offer from which on compiled code is used: loading and compiling it costs a process seconds, once."""
_SOURCE_COUNTS_AS = 16
LONGEST_CLOCK = 1 << 31
LARGEST_CREDIT = 1 << 61
REACHED, STARVED, FULL, NO_CREDIT = range(4)
"""Why `draw_by_credit` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRules:
    """Pieces are at most `longest` tokens and take multiples of `align`; shares may count samples, not tokens."""

    longest: int
    align: int
    counts_pieces: bool
    counts_samples: bool


@dataclass(slots=True, kw_only=True)
class Offers:
    """What the sources have to draw from, and how far they are; `draw_fairly` moves it on.

    Attributes:
        weight_S: Shape (S,), int64, sums to 2**30; sources of weight 0 are never drawn.
        credit_S: S integers of any size.
        place_S: Shape (S,), int64, index into tokens_K of the next sample of each source; stop_S when there is none.
        offset_S: Shape (S,), int64, tokens of that sample that are drawn already.
        tokens_K: Shape (K,), int64, lengths of the samples, source by source.
    """

    weight_S: Int64Array
    credit_S: list[int]
    place_S: Int64Array
    stop_S: Int64Array
    offset_S: Int64Array
    tokens_K: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Pieces in the order drawn, each column int64 (M,): source, index into tokens_K, first token, number of tokens.

    `amount` is their sum of aligned tokens (or their number); `starved` names the sources that are due and have
    nothing to draw from, in the order in which they fell due: if there are any, the draw has stopped short.
    """

    source_M: Int64Array
    at_M: Int64Array
    first_M: Int64Array
    tokens_M: Int64Array
    amount: int
    starved: list[int]


def draw_fairly(offers: Offers, rules: DrawRules, amount: int) -> Drawn:
    """Draw pieces of `amount` aligned tokens (or `amount` pieces), as far as due sources have samples.

    Worst-case fair weighted fair queueing (WF2Q, Bennett and Zhang 1996): credit_s grows by w_s for every unit drawn
    from anyone and falls by 2**30 for a unit drawn from s. Among sources with credit >= 0 the one whose next piece
    would be paid first is drawn: least (2**30 n - credit) / w, ties to the lower index.
    """
    most = len(offers.tokens_K) + int(offers.tokens_K.sum()) // rules.longest  # whole samples, and cut ones
    room = max(1, min(MOST_PIECES, most, amount if rules.counts_pieces else amount // rules.align + 1))
    parts: list[list[Int64Array]] = []
    drawn, reason, starved = 0, FULL, list[int]()
    while reason == FULL:
        columns, reason, drawn_now, starved = _run(offers, rules, amount - drawn, room)
        parts.append(columns)
        drawn += drawn_now
    if reason == NO_CREDIT:
        raise InternalError("no source has credit though credits sum to zero")
    source_M, at_M, first_M, tokens_M = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Drawn(
        source_M=source_M, at_M=at_M, first_M=first_M, tokens_M=tokens_M, amount=drawn, starved=starved
    )  # fmt: skip


def _run(offers: Offers, rules: DrawRules, amount: int, room: int) -> tuple[list[Int64Array], int, int, list[int]]:
    """One call over arrays; over lists of Python's integers where that is little, or 64 bits might not do."""
    num = len(offers.credit_S)
    is_exact = max(map(abs, offers.credit_S)) <= LARGEST_CREDIT and rules.longest <= LONGEST_CLOCK
    state = [np.array(offers.credit_S, np.int64 if is_exact else np.object_), offers.place_S, offers.offset_S]
    out = [np.empty(room, np.int64) for _ in range(4)]
    scratch = [np.zeros(num, np.int64) for _ in range(7)]
    arrays: list[Any] = [*state, offers.weight_S, offers.stop_S, offers.tokens_K, *out, *scratch]
    function: Callable[..., tuple[int, int, int, int]] = draw_by_credit
    if not (HAS_NUMBA and is_exact and len(offers.tokens_K) + _SOURCE_COUNTS_AS * num >= COMPILE_FROM):
        arrays = [array.tolist() for array in arrays]
        function = interpreted(draw_by_credit)
    caps = (amount, rules.longest, rules.align, rules.counts_pieces, rules.counts_samples)
    reason, num_pieces, drawn, num_starved = function(*arrays, *caps)
    offers.credit_S = [int(credit) for credit in arrays[0]]
    offers.place_S, offers.offset_S = (np.asarray(array, np.int64) for array in arrays[1:3])
    columns = [np.asarray(column[:num_pieces], np.int64) for column in arrays[6:10]]
    return columns, reason, drawn, [int(source) for source in arrays[-1][:num_starved]]


@compiled
def draw_by_credit(
    credit_S: Int64Array, place_S: Int64Array, offset_S: Int64Array, weight_S: Int64Array, stop_S: Int64Array,
    tokens_K: Int64Array, source_M: Int64Array, at_M: Int64Array, first_M: Int64Array, tokens_M: Int64Array,
    since_S: Int64Array, due_S: Int64Array, whole_S: Int64Array, rest_S: Int64Array, waiting_S: Int64Array,
    ready_S: Int64Array, starved_S: Int64Array, amount: int, longest: int, align: int, counts_pieces: bool,
    counts_samples: bool,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Draw until `amount`, until a due source has nothing to draw from, or until there is no room for more pieces.

    Credits and places say everything that it goes by, so another call goes on. The instants at which a credit reaches
    0 (`due`) and at which the next piece is paid (`whole` + `rest` / w) are constants on the clock of drawn units until
    the source is drawn itself: two heaps do, O(log S) a draw. With |credit| <= 2**61 and a clock <= 2**32 everything
    is exact in 64 bits.

    Returns:
        The reason, pieces drawn, their amount, and the number of starved sources.
    """
    clock = drawn = num_pieces = num_ready = 0
    num_waiting = _all_wait(waiting_S, due_S, credit_S, weight_S)
    reason, num_starved = REACHED, 0
    while drawn < amount:
        while num_waiting > 0 and due_S[waiting_S[0]] <= clock:
            s = waiting_S[0]
            num_waiting = pop_due(waiting_S, num_waiting, due_S)
            if place_S[s] == stop_S[s]:
                starved_S[num_starved] = s
                num_starved += 1
            else:
                tokens = min(tokens_K[place_S[s]] - offset_S[s], longest)
                price = _units(tokens, offset_S[s], counts_samples) * ONE - _credit(
                    s, credit_S, since_S, weight_S, clock
                )
                whole_S[s], rest_S[s] = clock + price // weight_S[s], price % weight_S[s]
                num_ready = push_ready(ready_S, num_ready, s, whole_S, rest_S, weight_S)
        reason = _why_stop(num_starved, num_ready, num_pieces == len(source_M) or clock > LONGEST_CLOCK)
        if reason != REACHED:
            break
        s = ready_S[0]
        num_ready = pop_ready(ready_S, num_ready, whole_S, rest_S, weight_S)
        at, first = place_S[s], offset_S[s]
        tokens = min(tokens_K[at] - first, longest)
        source_M[num_pieces], at_M[num_pieces], first_M[num_pieces], tokens_M[num_pieces] = s, at, first, tokens
        num_pieces += 1
        drawn += 1 if counts_pieces else (tokens + align - 1) // align * align
        is_done = first + tokens >= tokens_K[at]
        place_S[s], offset_S[s] = (at + 1, 0) if is_done else (at, first + tokens)
        units = _units(tokens, first, counts_samples)
        clock += units
        credit_S[s] = _credit(s, credit_S, since_S, weight_S, clock) - units * ONE
        since_S[s], due_S[s] = clock, clock - credit_S[s] // weight_S[s]
        num_waiting = push_due(waiting_S, num_waiting, s, due_S)
    for s in range(len(weight_S)):
        credit_S[s] = _credit(s, credit_S, since_S, weight_S, clock)
    return reason, num_pieces, drawn, num_starved


@compiled
def _all_wait(waiting_S: Int64Array, due_S: Int64Array, credit_S: Int64Array, weight_S: Int64Array) -> int:
    num = 0
    for s in range(len(weight_S)):
        if weight_S[s] > 0:
            due_S[s] = -(credit_S[s] // weight_S[s])
            num = push_due(waiting_S, num, s, due_S)
    return num


@compiled
def _credit(s: int, credit_S: Int64Array, since_S: Int64Array, weight_S: Int64Array, clock: int) -> int:
    """Credit of a source now; credit_S holds what it was at the instant since_S."""
    return credit_S[s] + weight_S[s] * (clock - since_S[s])  # type: ignore[no-any-return]


@compiled
def _units(tokens: int, first: int, counts_samples: bool) -> int:
    """What a piece counts in its source's share."""
    if counts_samples:
        return 0 if first > 0 else 1
    return tokens


@compiled
def _why_stop(num_starved: int, num_ready: int, is_full: bool) -> int:
    if num_starved > 0:
        return STARVED
    if num_ready == 0:
        return NO_CREDIT
    return FULL if is_full else REACHED
