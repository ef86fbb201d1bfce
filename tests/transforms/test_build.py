from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from loadmaster_flight.wire.errors import SpecError

from .conftest import ListBlock


@pytest.mark.parametrize(
    ("run", "transform", "message"),
    [
        ({"tokenizer": "gone.json"}, {}, "tokenizer: must be a readable tokenizer.json, got 'gone.json': No such file"),
        ({}, {"tokenizer": "no.json"}, "sources.web.transform.tokenizer: must be a readable"),
        ({"tokenizer": None}, {}, "sources.web.transform.tokenizer: must name a tokenizer.json"),
        ({"tokenizer": None}, {"tokens": "ids"}, "vocab_size: must be given: source 'web' has no tokenizer"),
        ({"vocab_size": 319}, {}, "vocab_size: must be at least 320, the size of .*, for source 'web', got 319"),
        ({}, {"eos": "<eos>"}, "sources.web.transform.eos: must be a token of .*, got '<eos>'"),
        ({}, {"bos": "nope"}, "sources.web.transform.bos: must be a token of .*, got 'nope'"),
        ({}, {"bos": True, "max_tokens": 2}, "max_tokens: must be at least min_tokens 1 and hold a token beside 2"),
        ({}, {"max_tokens": 8, "min_tokens": 9}, "max_tokens: must be at least min_tokens 9 .* got 8"),
        ({}, {"messages": "m", "chat_template": "gone.jinja"}, "chat_template: must be a readable file, got 'gone.jin"),
        ({}, {"messages": "m", "chat_template": "{% if %}"}, "chat_template: not a Jinja template, line 1"),
        (
            {"tokenizer": None, "vocab_size": 9},
            {"tokens": "ids", "eos": "</s>"},
            "sources.web.transform.eos: needs a tokenizer that knows the token, got '</s>'",
        ),
    ],
)
def test_build_when_something_is_wrong_then_spec_error_names_field_rule_and_value(build, run, transform, message):
    with pytest.raises(SpecError, match=message) as caught:
        build(run=run, **transform)
    assert caught.value.message.startswith(caught.value.details["field"])


def test_build_when_the_file_is_no_tokenizer_then_spec_error(build, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(SpecError, match="tokenizer: not a Hugging Face tokenizers file"):
        build(run={"tokenizer": str(path)})


def test_eos_when_the_tokenizer_has_none_then_spec_error_says_what_to_write(build, tokenizer_file, tmp_path):
    path = shutil.copy(tokenizer_file, tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<none>"}))
    with pytest.raises(SpecError, match=r"eos: .* names no eos token of its own; name the token's text, or give"):
        build(run={"tokenizer": str(path)})


@pytest.mark.parametrize("token", ["<|im_end|>", {"content": "<|im_end|>", "special": True}])
def test_eos_when_a_file_beside_the_tokenizer_names_it_then_that_one(build, tokenizer_file, tmp_path, token):
    path = shutil.copy(tokenizer_file, tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": token}))
    got = build(run={"tokenizer": str(path)}).measure(ListBlock([{"text": "a"}]), np.arange(1))
    assert got.tokens[-1] == 3


def test_tokenizer_when_its_file_truncates_and_pads_then_that_is_ignored(build, tokenizer_file, tmp_path):
    tree = json.loads(tokenizer_file.read_text())
    tree["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tree))
    block = ListBlock([{"text": "one two three four five"}])
    got = build(run={"tokenizer": str(path)}).measure(block, np.arange(1))
    assert got.tokens.tolist() == build().measure(block, np.arange(1)).tokens.tolist()


def test_fingerprint_when_files_move_then_it_stays(build, tokenizer_file, tmp_path):
    path = shutil.copy(tokenizer_file, tmp_path / "other.json")
    assert build(run={"tokenizer": str(path)}).fingerprint == build().fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"text": "body"},
        {"bos": True},
        {"eos": False},
        {"eos": "<|im_end|>"},
        {"max_tokens": 9},
        {"min_tokens": 2},
        {"messages": "text"},
        {"function": "json:loads"},
        {"run": {"vocab_size": 600}},
    ],
)
def test_fingerprint_when_anything_that_decides_tokens_changes_then_it_changes(build, change):
    assert build(**change).fingerprint != build().fingerprint


def test_fingerprint_when_bytes_of_tokenizer_or_template_change_then_it_changes(build, tokenizer_file, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(tokenizer_file.read_bytes() + b"\n")
    assert build(run={"tokenizer": str(path)}).fingerprint != build().fingerprint
    chats = [build(messages="m", chat_template="{{ messages[0].content }}" + tail).fingerprint for tail in ("", "x")]
    assert chats[0] != chats[1]


def test_transform_when_called_by_many_threads_then_each_gets_its_own_rows(build):
    transform = build(messages="messages")
    blocks = [
        ListBlock([{"messages": [{"role": "assistant", "content": f"answer {n} " * (n + 1)}]}]) for n in range(32)
    ]
    alone = [transform.measure(block, np.arange(1)).tokens.tolist() for block in blocks]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda block: transform.measure(block, np.arange(1)).tokens.tolist(), blocks))
    assert together == alone
