"""The fair choice of the next source, against a plain scan in fractions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import InternalError
from loadmaster_server.planning import fair
from loadmaster_server.planning.fair import ONE, Drawn, DrawRules, Offers, draw_fairly
from loadmaster_server.planning.mixture import weights_of

Piece = tuple[int, int, int, int]


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair, "COMPILE_FROM", 0)
        yield


def _rules(longest: int = 1 << 20, *, counts_samples: bool = False) -> DrawRules:
    return DrawRules(longest=longest, align=1, counts_pieces=False, counts_samples=counts_samples)


def _offers(weights: list[int], lengths: list[list[int]], credit: list[int] | None = None) -> Offers:
    stop_S = np.cumsum([len(tokens) for tokens in lengths])
    return Offers(
        weight_S=np.array(weights, np.int64),
        credit_S=credit or [0] * len(weights),
        place_S=np.append(0, stop_S[:-1]),
        stop_S=stop_S,
        offset_S=np.zeros(len(weights), np.int64),
        tokens_K=np.array([n for tokens in lengths for n in tokens], np.int64),
    )


def _pieces(drawn: Drawn) -> list[Piece]:
    columns = (drawn.source_M, drawn.at_M, drawn.first_M, drawn.tokens_M)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _scan(offers: Offers, rules: DrawRules, amount: int) -> tuple[list[Piece], list[int]]:
    """The rule as it is written, source by source, piece by piece; every source has enough samples."""
    weights, credit, pieces = offers.weight_S.tolist(), list(offers.credit_S), []
    place, offset = offers.place_S.tolist(), offers.offset_S.tolist()
    while amount > 0:
        sizes = [min(int(offers.tokens_K[k]) - first, rules.longest) for k, first in zip(place, offset, strict=True)]
        units = [int(not first) for first in offset] if rules.counts_samples else sizes
        due = [s for s, w in enumerate(weights) if w and credit[s] >= 0]
        s = min(due, key=lambda s: (Fraction(ONE * units[s] - credit[s], weights[s]), s))
        pieces.append((s, place[s], offset[s], sizes[s]))
        credit = [c + w * units[s] for c, w in zip(credit, weights, strict=True)]
        credit[s] -= ONE * units[s]
        amount, offset[s] = amount - sizes[s], offset[s] + sizes[s]
        if offset[s] >= offers.tokens_K[place[s]]:
            place[s], offset[s] = place[s] + 1, 0
    return pieces, credit


def _case(seed: int, num: int, least: int = 1) -> tuple[list[int], list[list[int]]]:
    rng = np.random.default_rng(seed)
    weights = weights_of(rng.integers(least, 100, num).tolist(), [True] * num)
    return weights, rng.integers(1, 500, (num, 200)).tolist()


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    num=st.integers(1, 12),
    longest=st.sampled_from([64, 1 << 20]),
    counts_samples=st.booleans(),
    scale=st.sampled_from([0, 1, ONE, ONE**2]),
)
def test_draw_when_compared_with_a_plain_scan_then_it_draws_the_same(
    seed: int, num: int, longest: int, counts_samples: bool, scale: int
) -> None:
    weights, lengths = _case(seed, num)
    start = np.random.default_rng(seed).integers(-9, 10, num).tolist()
    start = [scale * c for c in (*start[:-1], -sum(start[:-1]))]
    rules = _rules(longest, counts_samples=counts_samples)
    offers = _offers(weights, lengths, start)
    amount = 2000 if scale < ONE**2 else 300
    expected = _scan(_offers(weights, lengths, start), rules, amount)
    drawn = draw_fairly(offers, rules, amount)
    assert (_pieces(drawn), offers.credit_S) == expected
    assert drawn.amount == drawn.tokens_M.sum() >= amount
    assert drawn.starved == []


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), num=st.integers(1, 60), amounts=st.lists(st.integers(1, 2500), max_size=4))
def test_draw_when_made_in_parts_then_it_is_the_same_and_credit_stays_within_a_piece(
    seed: int, num: int, amounts: list[int]
) -> None:
    weights, lengths = _case(seed, num)
    whole, parts = _offers(weights, lengths), _offers(weights, lengths)
    pieces: list[Piece] = []
    for amount in amounts:
        pieces += _pieces(draw_fairly(parts, _rules(), amount))
        assert sum(parts.credit_S) == 0
        assert max(map(abs, parts.credit_S)) <= ONE * 500
    assert pieces == _pieces(draw_fairly(whole, _rules(), sum(tokens for *_, tokens in pieces)))
    assert parts.credit_S == whole.credit_S


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32), num=st.integers(1, 8), amount=st.integers(1, 4000), longest=st.sampled_from([32, 999])
)
def test_draw_when_interpreted_then_it_is_the_same(seed: int, num: int, amount: int, longest: int) -> None:
    weights, lengths = _case(seed, num, least=0)
    if not any(weights):
        return
    lengths = [tokens[: 5 + 40 * s] for s, tokens in enumerate(lengths)]
    offers = [_offers(weights, lengths) for _ in range(2)]
    drawn = [draw_fairly(offers[0], _rules(longest), amount)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair, "COMPILE_FROM", 1 << 60)
        drawn.append(draw_fairly(offers[1], _rules(longest), amount))
    assert _pieces(drawn[0]) == _pieces(drawn[1])
    assert drawn[0].starved == drawn[1].starved
    assert offers[0].credit_S == offers[1].credit_S
    assert (offers[0].place_S == offers[1].place_S).all()
    assert (offers[0].offset_S == offers[1].offset_S).all()


def test_draw_when_due_sources_have_nothing_then_they_are_named_and_the_draw_stops() -> None:
    drawn = draw_fairly(_offers([ONE // 4, ONE // 2, ONE // 4], [[], [10, 10], []]), _rules(), 100)
    assert (_pieces(drawn), drawn.starved) == ([], [0, 2])
    drawn = draw_fairly(_offers([ONE // 2, ONE // 2], [[10], [10, 10, 10]]), _rules(), 100)
    assert [source for source, *_ in _pieces(drawn)] == [0, 1]
    assert drawn.starved == [0]


def test_draw_when_there_is_more_than_room_then_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, lengths = _case(1, 4)
    whole = draw_fairly(_offers(weights, lengths), _rules(), 20_000)
    monkeypatch.setattr(fair, "MOST_PIECES", 7)
    assert _pieces(draw_fairly(_offers(weights, lengths), _rules(), 20_000)) == _pieces(whole)


def test_draw_when_all_credit_is_negative_then_it_fails_loudly() -> None:
    offers = _offers([ONE // 2, ONE // 2], [[10], [10]], [-1, -1])
    with pytest.raises(InternalError, match="no source has credit"):
        draw_fairly(offers, _rules(), 10)
