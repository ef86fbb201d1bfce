from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.transforms import CHATML
from loadmaster_flight.transforms.chat import token_spans
from loadmaster_flight.transforms.chat_template import ChatTemplate
from loadmaster_flight.wire.errors import SpecError
from loadmaster_flight.wire.schemas import Verdict

from .conftest import ListBlock

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where does it go?"},
    {"role": "assistant", "content": "To the hold."},
    {"role": "user", "content": "And then?"},
    {"role": "assistant", "content": "To the rank, größer."},
]
PLAIN = "{% for m in messages %}{{ '[' + m.role + ']' + m.content + '\n' }}{% endfor %}"
PROMPTED = PLAIN + "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens={"bos_token": "<s>"}, field="chat_template")


def learnt(build, messages, **transform) -> list[str]:
    """Text of each loss span of a chat."""
    built = build(messages="messages", **transform)
    got = built.measure(ListBlock([{"messages": messages}]), np.arange(1))
    assert got.reason == [None]
    assert got.loss_spans is not None
    pairs = got.loss_spans[0].reshape(-1, 2)
    return [built.decode(got.row_tokens(0)[start:stop]) for start, stop in pairs]


def test_chat_when_no_template_is_named_then_chatml_and_loss_on_the_assistant_alone(build):
    assert learnt(build, CHAT) == ["To the hold.<|im_end|>", "To the rank, größer.<|im_end|>"]


def test_chat_when_rendered_then_the_document_is_the_templates_text_and_eos(build):
    built = build(messages="messages")
    got = built.measure(ListBlock([{"messages": CHAT[1:3]}]), np.arange(1))
    want = "<|im_start|>user\nWhere does it go?<|im_end|>\n<|im_start|>assistant\nTo the hold.<|im_end|>\n</s>"
    assert built.decode(got.tokens) == want


def test_chat_when_bos_is_added_then_spans_move_with_it(build):
    assert learnt(build, CHAT, bos="<s>") == learnt(build, CHAT)


def test_chat_when_the_template_has_no_generation_blocks_then_turns_are_told_apart(build):
    assert learnt(build, CHAT, chat_template=PROMPTED) == ["To the hold.\n", "To the rank, größer.\n"]


def test_chat_when_the_template_knows_no_prompt_then_the_whole_turn_counts(build):
    assert learnt(build, CHAT, chat_template=PLAIN)[0] == "[assistant]To the hold.\n"


def test_chat_when_the_template_is_a_file_then_it_is_read(build, tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text(PROMPTED)
    assert learnt(build, CHAT, chat_template=str(path)) == learnt(build, CHAT, chat_template=PROMPTED)


def test_chat_when_cut_then_spans_end_with_the_document(build):
    built = build(messages="messages", max_tokens=60)
    got = built.measure(ListBlock([{"messages": CHAT}]), np.arange(1))
    assert len(got.tokens) == 60
    assert got.loss_spans[0].max() <= 59


def test_chat_when_nothing_of_the_assistant_is_left_then_skipped(build):
    built = build(messages="messages", max_tokens=8)
    got = built.measure(ListBlock([{"messages": CHAT}]), np.arange(1))
    assert got.reason == ["no target within max_tokens 8"]


@pytest.mark.parametrize(
    ("value", "verdict", "reason"),
    [
        (None, Verdict.SKIPPED, "null messages"),
        ([], Verdict.SKIPPED, "empty messages"),
        (CHAT[:2], Verdict.SKIPPED, "no turn of the assistant"),
        ("hello", Verdict.BAD, "messages must be a list, got str"),
        (["hello"], Verdict.BAD, "messages[0] must be an object, got str"),
        ([{"content": "x"}], Verdict.BAD, "messages[0] must have 'role'"),
        ([CHAT[0], {"role": "user"}], Verdict.BAD, "messages[1] must have 'content'"),
        ([{"role": None, "content": "x"}], Verdict.BAD, "messages[0].role must be a string, got NoneType"),
        ([{"role": "assistant", "content": "\ud800"}], Verdict.BAD, "messages have a lone surrogate"),
        (RowFault(reason="broken"), Verdict.BAD, "broken"),
    ],
)
def test_chat_when_it_cannot_be_used_then_verdict_and_reason_say_why(measure, value, verdict, reason):
    got = measure(CHAT, value, messages="messages")
    assert got.verdict.tolist() == [Verdict.OK, verdict]
    assert got.reason == [None, reason]
    assert got.loss_spans[1] is None


def test_chat_when_a_struct_fills_keys_with_null_then_the_template_does_not_see_them(build):
    template = "{% for m in messages %}{{ 'call' if m.tool_calls is defined else m.content }}{% endfor %}"
    filled = [{**message, "tool_calls": None} for message in CHAT]
    assert learnt(build, filled, chat_template=template) == learnt(build, CHAT, chat_template=template)


def test_chat_when_the_template_refuses_then_bad_with_its_words(measure):
    refusing = "{{ raise_exception('roles must alternate') }}"
    got = measure(CHAT, messages="messages", chat_template=refusing)
    assert got.reason == ["chat template: TemplateError: roles must alternate"]


def test_chat_when_turns_cannot_be_told_apart_then_bad_and_not_guessed(measure):
    last_only = "{% for m in messages %}{% if loop.last %}{{ m.content }}{% else %}.{% endif %}{% endfor %}"
    got = measure(CHAT, messages="messages", chat_template=last_only)
    assert got.verdict.tolist() == [Verdict.BAD]
    assert "mark turns with generation blocks" in got.reason[0]


def test_template_when_it_asks_for_the_clock_then_there_is_none():
    source = "{{ 'clock' if strftime_now is defined else 'none' }}"
    assert template(source).render([]).text == "none"


def test_template_when_it_reaches_for_internals_then_the_sandbox_refuses(measure):
    got = measure(CHAT, messages="messages", chat_template="{{ messages.__class__.__mro__ }}")
    assert got.reason[0].startswith("chat template: SecurityError")


def test_template_when_not_jinja_then_spec_error_names_line_and_field():
    with pytest.raises(SpecError, match="chat_template: not a Jinja template, line 2"):
        template("a\n{% for %}")


def test_template_when_variables_are_set_in_generation_then_they_are_seen_after_it():
    source = "{% generation %}{% set x = 'in' %}{{ x }}{% endgeneration %}{{ x }}"
    got = template(source).render([])
    assert (got.text, got.spans) == ("inin", ((0, 2),))


def test_template_when_it_knows_special_tokens_then_it_writes_them():
    assert template("{{ bos_token }}").render([]).text == "<s>"


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=12)), min_size=1, max_size=5))
def test_template_when_any_text_is_said_then_spans_are_exactly_the_assistants(turns):
    messages = [{"role": role, "content": text} for role, text in turns]
    got = template(CHATML).render(messages)
    said = [text + "<|im_end|>" for role, text in turns if role == "assistant"]
    assert [got.text[start:stop] for start, stop in got.spans] == said
    assert got.text.count("<|im_start|>") >= len(turns)


def test_token_spans_when_a_token_straddles_a_border_then_it_counts():
    offsets_n2 = np.array([[0, 2], [2, 5], [5, 6], [6, 9]], np.int32)
    assert token_spans([(4, 6)], offsets_n2).tolist() == [[1, 3]]
    assert token_spans([(2, 5)], offsets_n2).tolist() == [[1, 2]]
