from __future__ import annotations

import numpy as np
import pytest

from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.wire.schemas import Verdict


def ids(measure, *values, vocab_size=1000, **transform):
    run = {"tokenizer": None, "vocab_size": vocab_size}
    return measure(*values, tokens="input_ids", run=run, **transform)


@pytest.mark.parametrize("value", [[3, 5, 8], (3, 5, 8), np.array([3, 5, 8], np.uint16), np.array([3, 5, 8], np.int64)])
def test_ids_when_integers_of_any_kind_then_they_pass_through_unchanged(measure, value):
    got = ids(measure, value)
    assert got.tokens.tolist() == [3, 5, 8]
    assert got.tokens.dtype == np.int32


@pytest.mark.parametrize(
    ("value", "verdict", "reason"),
    [
        (None, Verdict.SKIPPED, "null tokens"),
        ([], Verdict.SKIPPED, "empty tokens"),
        ([1, 1000], Verdict.BAD, "token id 1000 is outside [0, 1000)"),
        ([1, -1], Verdict.BAD, "token id -1 is outside [0, 1000)"),
        ([1, 2**32 + 1], Verdict.BAD, "token id 4294967297 is outside [0, 1000)"),
        ([1, 2**70], Verdict.BAD, f"token id {2**70} is outside [0, 1000)"),
        (np.array([2**64 - 1], np.uint64), Verdict.BAD, f"token id {2**64 - 1} is outside [0, 1000)"),
        ([1.5, 2], Verdict.BAD, "tokens must be integers, got float"),
        ([1, None], Verdict.BAD, "tokens must be integers, got null"),
        ([True, False], Verdict.BAD, "tokens must be integers, got bool"),
        (["1"], Verdict.BAD, "tokens must be integers, got str"),
        ([[1], [2]], Verdict.BAD, "tokens must be a flat list of integers, got 2 dimensions"),
        ([[1], [2, 3]], Verdict.BAD, "tokens must be a flat list of integers, got lists of several lengths"),
        ("123", Verdict.BAD, "tokens must be a list of integers, got str"),
        (RowFault(reason="cut"), Verdict.BAD, "cut"),
    ],
)
def test_ids_when_they_cannot_be_used_then_verdict_and_reason_say_why(measure, value, verdict, reason):
    got = ids(measure, [7], value)
    assert got.verdict.tolist() == [Verdict.OK, verdict]
    assert got.reason == [None, reason]
    assert got.tokens.tolist() == [7]


def test_ids_when_a_special_token_is_named_by_text_then_it_is_added(measure):
    assert measure([9, 8], tokens="ids", bos="<s>", eos="</s>").tokens.tolist() == [0, 9, 8, 1]
    assert measure([9, 8], tokens="ids", bos=True).tokens.tolist() == [9, 8]


def test_ids_when_too_long_or_short_then_cut_or_skipped(measure):
    got = ids(measure, list(range(10)), [1], max_tokens=4, min_tokens=2)
    assert got.tokens.tolist() == [0, 1, 2, 3]
    assert got.reason == [None, "shorter than min_tokens 2"]
