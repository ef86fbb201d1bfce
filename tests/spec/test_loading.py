from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadmaster_flight.spec import RunSpec, load_run_spec
from loadmaster_flight.spec.loading import line_of
from loadmaster_flight.wire.errors import SpecError

GOOD = """\
run: test
tokenizer: tok/tokenizer.json
sources:
  web:
    uri: data/web-*.parquet
    transform:
      text: text
  code:
    uri: [code/a.jsonl, s3://bucket/code-*.jsonl, /abs/b.jsonl]
    transform:
      messages: chat
      chat_template: chat.jinja
mixture:
  weights:
    web: 0.5
    code: 0.5
batch:
  seq_len: 64
  microbatches: 2
"""
Load = Callable[..., RunSpec]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads GOOD with one piece of text replaced, from RUN.yaml."""

    def make(old: str = "", new: str = "", *, text: str | None = None) -> RunSpec:
        assert old in GOOD
        path = tmp_path / "RUN.yaml"
        path.write_text(GOOD.replace(old, new, 1) if text is None else text)
        return load_run_spec(path)

    return make


def faults(load: Load, *args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(*args, **kwargs)
    return caught.value.message.splitlines()


def test_spec_when_good_then_paths_are_absolute_and_the_rest_stays(load, tmp_path):
    run = load()
    assert run.tokenizer == str(tmp_path / "tok/tokenizer.json")
    assert run.sources["web"].uri == str(tmp_path / "data/web-*.parquet")
    want = (str(tmp_path / "code/a.jsonl"), "s3://bucket/code-*.jsonl", "/abs/b.jsonl")
    assert run.sources["code"].uri == want
    assert run.sources["code"].transform.chat_template == str(tmp_path / "chat.jinja")
    assert run.source_names == ["web", "code"]


def test_spec_when_turned_into_a_tree_and_back_then_equal(load):
    run = load()
    assert RunSpec.model_validate(run.to_tree()) == run


def test_template_when_written_inline_then_it_is_no_path(load):
    assert load("chat.jinja", '"{{ messages }}"').sources["code"].transform.chat_template == "{{ messages }}"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "  microbatches",
            "  aling: 8\n  microbatches",
            "RUN.yaml:19: batch.aling: unknown key 'aling'; did you m",
        ),
        ("      text: text", "      txet: a", "RUN.yaml:7: sources.web.transform.txet: unknown key 'txet'; did you me"),
        ("run: test", "run: test\nqqq: 1", "RUN.yaml:2: qqq: unknown key 'qqq'; known are batch, budgets, "),
        ("seq_len: 64", "seq_len: 100", "RUN.yaml:17: batch.align: must divide seq_len, got align 16 and seq_len 100"),
        ("seq_len: 64", "seq_len: 8\n  align: 8\n  c_multiple: 16", "RUN.yaml:18: batch.seq_len: must be at least c_m"),
        ("seq_len: 64", "seq_len: 64\n  c_multiple: 24", "RUN.yaml:17: batch.align: must divide c_multiple, got al"),
        ("microbatches: 2", "microbatches: 0", "RUN.yaml:19: batch.microbatches: must be at least g_multiple 1, got 0"),
        (
            "microbatches: 2",
            "microbatches: 2\n  rows: 2",
            "RUN.yaml:20: batch.rows: must be 1 unless layout is pad, go",
        ),
        ("web: 0.5", "web: -0.5", "RUN.yaml:15: mixture.weights.web: must be greater than or equal to 0, got -0.5"),
        ("web: 0.5", "web: .nan", "RUN.yaml:15: mixture.weights.web: must be a finite number, got nan"),
        ("web: 0.5", "web: .inf", "RUN.yaml:15: mixture.weights.web: must be a finite number, got inf"),
        ("web: 0.5", "web: much", "RUN.yaml:15: mixture.weights.web: must be a number or a list of knots, got 'much'"),
        ("web: 0.5", "web: true", "RUN.yaml:15: mixture.weights.web: must be a number or a list of knots, got True"),
        ("    web: 0.5", "    wbe: 0.5", "RUN.yaml:15: mixture.weights.wbe: names no source; did you mean 'web'?"),
        ("    web: 0.5", "    web: []", "RUN.yaml:15: mixture.weights.web: must have at least 1 item"),
        (
            "run: test",
            "run: My Run",
            "RUN.yaml:1: run: must have 1 to 63 of a-z, 0-9, '_', '.' and '-', and start with",
        ),
        ("uri: data/web-*.parquet", "uri: 7", "RUN.yaml:5: sources.web.uri: must be a string or a list, got 7"),
        ("[code/a.jsonl,", "[7,", "RUN.yaml:9: sources.code.uri.0: must be a string, got 7"),
        ("    uri: data/web-*.parquet\n", "", "RUN.yaml:4: sources.web.uri: is missing"),
        ("      text: text", "      bos: <s>", "RUN.yaml:6: sources.web.transform: give exactly one of text, messages"),
        (
            "batch:",
            "mesh: {order: [pp, dp, cp, cp]}\nbatch:",
            "RUN.yaml:17: mesh.order: must name pp, dp, cp and tp on",
        ),
        (
            "text: text",
            "text: text\n      chat_template: a.jinja",
            "RUN.yaml:8: sources.web.transform.chat_template: n",
        ),
        ("batch:", "until: {steps: 1.5}\nbatch:", "RUN.yaml:17: until.steps: must be an integer, got 1.5"),
        ("batch:", "mixture: 3\nbatch:", "RUN.yaml:17: key 'mixture' is there twice, first on line 13"),
        (
            "batch:",
            "evaluation: {val: {sources: [wep]}}\nbatch:",
            "RUN.yaml:17: evaluation.val.sources: names no source",
        ),
        ("batch:", "evaluation: {train: {sources: [web]}}\nbatch:", "RUN.yaml:17: evaluation.train: must have another"),
    ],
)
def test_spec_when_a_field_is_wrong_then_one_line_names_place_field_rule_and_value(load, old, new, fault):
    found = faults(load, old, new)
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_weights_when_all_are_zero_at_some_step_then_refused(load):
    assert faults(load, text=GOOD.replace("0.5", "0"))[0].endswith(
        "mixture.weights: must have a positive weight at every step, all are 0 at step 0"
    )
    gap = GOOD.replace("0.5", "[{at: 0, value: 1}, {at: 10, value: 0}, {at: 20, value: 1}]")
    assert faults(load, text=gap)[0].endswith("all are 0 at step 10")


def test_spec_when_several_fields_are_wrong_then_every_fault_is_told_in_file_order(load):
    text = GOOD.replace("seq_len", "seqlen").replace("web: 0.5", "web: -1").replace("run: test", "run: 7")
    found = faults(load, text=text)
    assert [line.split(":")[1] for line in found] == ["1", "15", "17", "18"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "RUN.yaml:1: a run spec must be a mapping of fields, got an empty file"),
        ("- a\n- b\n", "RUN.yaml:1: a run spec must be a mapping of fields, got a list"),
        ("run: [1\nseed: 2\n", "RUN.yaml:2: not YAML: "),
        ("run: !!python/object:os.system x\n", "RUN.yaml:1: not YAML: could not determine a constructor"),
        ("run: a\x00b\n", "RUN.yaml: not YAML: "),
        ("a: 1\nb: 2\na: 3\nb: 4\n", "RUN.yaml:3: key 'a' is there twice, first on line 1"),
    ],
)
def test_spec_when_not_a_mapping_or_not_yaml_then_spec_error_names_the_line(load, text, fault):
    assert faults(load, text=text)[0].startswith(fault)


def test_spec_when_the_file_cannot_be_read_then_spec_error(tmp_path):
    with pytest.raises(SpecError, match=r"gone\.yaml: cannot be read: No such file"):
        load_run_spec(tmp_path / "gone.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"run: caf\xe9\n")
    with pytest.raises(SpecError, match="must be UTF-8, byte 8 is not"):
        load_run_spec(tmp_path / "latin.yaml")


def test_spec_when_it_starts_with_a_byte_order_mark_then_that_is_passed_over(load):
    assert load(text="\ufeff" + GOOD).run == "test"


def test_weights_when_written_as_yaml_text_numbers_then_they_are_numbers(load):
    assert load("web: 0.5", "web: 1e-4").mixture.weights["web"].at(0) == 1e-4


def test_weights_when_left_out_then_equal_over_sources_no_evaluation_names(load):
    head, tail = GOOD.split("mixture:")[0], "batch:" + GOOD.split("batch:")[1]
    assert {name: ramp.at(0) for name, ramp in load(text=head + tail).mixture.weights.items()} == {"web": 1, "code": 1}
    held_out = head + "evaluation: {val: {sources: [code]}}\nmixture: {unit: samples}\n" + tail
    mixture = load(text=held_out).mixture
    assert (list(mixture.weights), mixture.unit) == (["web"], "samples")
    assert list(load(text=head + "evaluation: {v: {sources: [web, code]}}\n" + tail).mixture.weights) == ["web", "code"]


def test_merged_mappings_when_a_field_is_wrong_then_its_own_line_is_named(load):
    text = GOOD.replace("  web:\n", "  web: &base\n    max_epochs: 0\n").replace(
        "  code:\n", "  code:\n    <<: *base\n"
    )
    assert [line.split(": ")[:2] for line in faults(load, text=text)] == [
        ["RUN.yaml:5", "sources.code.max_epochs"],
        ["RUN.yaml:5", "sources.web.max_epochs"],
    ]


def test_aliases_when_they_would_explode_then_duplicates_are_still_found_at_once(load):
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)) + "a0: 1\n"
    assert faults(load, text=bomb) == ["RUN.yaml:61: key 'a0' is there twice, first on line 1"]


def test_line_of_when_a_source_name_has_dots_then_the_field_is_found(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(GOOD.replace("  web:", "  web.v2:"))
    assert line_of(path, "sources.web.v2.transform.text") == 7
    assert line_of(path, "sources.web.v2.transform.tokenizer") == 6
    assert line_of(path, "nothing.here") == 1


def test_ramp_when_between_knots_then_follows_its_shape(load):
    knots = "web: [{at: 0, value: 0, shape: linear}, {at: 10, value: 1, shape: cosine}, {at: 20, value: 3}]"
    ramp = load("web: 0.5", knots).mixture.weights["web"]
    assert [ramp.at(step) for step in (0, 5, 10, 20, 99)] == [0, 0.5, 1, 3, 3]
    assert math.isclose(ramp.at(15), 2)


def test_spec_when_written_by_yaml_from_a_tree_then_loads_equal(load):
    run = load()
    assert load(text=yaml.safe_dump(run.to_tree(), sort_keys=False)) == run
