from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.transforms import tokenizer as tokenizer_module
from loadmaster_flight.wire.schemas import Verdict

from .conftest import ListBlock

BOS, EOS = 0, 1


def test_text_when_measured_then_ids_are_the_tokenizers_between_bos_and_eos(measure, tokenizer_file):
    text = "Every sample is cargo."
    got = measure(text, bos="<s>")
    want = Tokenizer.from_file(str(tokenizer_file)).encode(text, add_special_tokens=False).ids
    assert got.tokens.tolist() == [BOS, *want, EOS]
    assert got.tokens.dtype == np.int32
    assert got.verdict.tolist() == [Verdict.OK]
    assert got.loss_spans is None


@pytest.mark.parametrize(
    ("value", "verdict", "reason"),
    [
        (None, Verdict.SKIPPED, "null text"),
        ("", Verdict.SKIPPED, "empty text"),
        (" \n\t", Verdict.SKIPPED, "empty text"),
        (b"", Verdict.SKIPPED, "empty text"),
        (7, Verdict.BAD, "text must be a string, got int"),
        (["a"], Verdict.BAD, "text must be a string, got list"),
        (b"ab\xff", Verdict.BAD, "text is not UTF-8 at byte 2"),
        ("ab\ud800c", Verdict.BAD, "text has a lone surrogate at character 2"),
        (RowFault(reason="not JSON"), Verdict.BAD, "not JSON"),
    ],
)
def test_text_when_it_cannot_be_used_then_verdict_and_reason_say_why(measure, value, verdict, reason):
    got = measure("good", value, "good")
    assert got.verdict.tolist() == [Verdict.OK, verdict, Verdict.OK]
    assert got.reason == [None, reason, None]
    assert len(got.row_tokens(1)) == 0
    assert got.row_tokens(0).tolist() == got.row_tokens(2).tolist()
    assert got.size_bytes.tolist() == [got.row_tokens(0).nbytes, 0, got.row_tokens(2).nbytes]


def test_bytes_when_utf8_then_they_are_text(measure):
    got = measure("grüße".encode(), "grüße")
    assert got.row_tokens(0).tolist() == got.row_tokens(1).tolist()


@pytest.mark.parametrize("max_tokens", [3, 4, 7, 500])
def test_max_tokens_when_text_is_longer_then_the_document_has_exactly_that_many(measure, max_tokens):
    whole = measure("one two three four five six", bos="<s>").tokens
    cut = measure("one two three four five six", bos="<s>", max_tokens=max_tokens).tokens
    assert len(cut) == min(max_tokens, len(whole))
    assert cut[0] == BOS
    assert cut[-1] == EOS
    assert cut[:-1].tolist() == whole[: len(cut) - 1].tolist()


def test_min_tokens_when_document_is_shorter_then_it_is_skipped(measure):
    length = len(measure("ab").tokens)
    assert measure("ab", min_tokens=length).reason == [None]
    assert measure("ab", min_tokens=length + 1).reason == [f"shorter than min_tokens {length + 1}"]


def test_special_tokens_when_the_text_has_them_in_place_then_they_are_not_doubled(measure):
    got = measure("<s>ab</s>", bos=True, specials_in_text="token")
    assert got.tokens.tolist() == measure("ab", bos=True).tokens.tolist()


def test_rows_when_given_in_any_order_then_measured_in_that_order(build):
    block = ListBlock([{"text": "a"}, {"text": None}, {"text": "a longer text"}])
    transform = build()
    forward = transform.measure(block, np.array([0, 1, 2]))
    backward = transform.measure(block, np.array([2, 1, 0]))
    assert backward.reason == forward.reason[::-1]
    assert backward.row_tokens(0).tolist() == forward.row_tokens(2).tolist()
    assert backward.row_tokens(2).tolist() == forward.row_tokens(0).tolist()


def test_no_rows_when_measured_then_nothing(build):
    got = build().measure(ListBlock([]), np.zeros(0, np.int64))
    assert len(got) == 0
    assert got.offsets.tolist() == [0]


def test_large_texts_when_encoded_in_several_groups_then_the_same_as_one_by_one(measure, monkeypatch):
    texts = ["the load sheet " * n for n in (1, 30, 2, 50, 3)]
    whole = measure(*texts)
    monkeypatch.setattr(tokenizer_module, "CHUNK_CHARS", 100)
    grouped = measure(*texts)
    assert grouped.tokens.tolist() == whole.tokens.tolist()
    assert grouped.offsets.tolist() == whole.offsets.tolist()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.none() | st.text(max_size=40), max_size=6))
def test_text_when_anything_unicode_then_ok_rows_decode_to_it(build, texts):
    transform = build(eos=False)
    got = transform.measure(ListBlock([{"text": text} for text in texts]), np.arange(len(texts)))
    for i, text in enumerate(texts):
        usable = text is not None and not text.isspace() and text != ""
        assert (got.verdict[i] == Verdict.OK) == usable
        if usable:
            assert transform.decode(got.row_tokens(i)) == text
