from __future__ import annotations

import json

import pytest

from loadmaster_server.cli.check import main


def failed(capsys, path, *options) -> list[str]:
    """Lines on standard error of a check that must fail."""
    assert main([str(path), *options]) == 2
    return capsys.readouterr().err.removeprefix("loadmaster check: ").splitlines()


def test_check_when_all_is_well_then_the_inventory_is_printed(spec_file, capsys):
    assert main([str(spec_file())]) == 0
    out = capsys.readouterr().out
    web = next(line for line in out.splitlines() if " web " in line)
    assert [cell.strip() for cell in web.strip("│ ").split("│")][:4] == ["web", "parquet", "2", "4"]
    assert "75.00%" in web
    assert "2 sources" in out
    assert "run test can be created" in out


def test_check_when_asked_for_json_then_one_object_with_counts(spec_file, capsys):
    assert main([str(spec_file()), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    by_name = {source["source"]: source for source in report["sources"]}
    assert report["ok"] is True
    assert (by_name["web"]["num_samples"], by_name["web"]["is_estimate"]) == (40, False)
    assert by_name["chat"]["num_samples"] == 14
    assert report["totals"]["num_samples"] == 54
    assert [source["share"] for source in report["sources"]] == [0.75, 0.25]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("seq_len: 64", "seqlen: 64", "RUN.yaml:16: batch.seq_len: is missing"),
        ("uri: data/web/*.parquet", "uri: data/nope/*.parquet", "RUN.yaml:5: source web: sources.web.uri: "),
        ("doc.text", "doc.txt", "RUN.yaml:7: source web: sources.web.transform.text: "),
        ("data/tokenizer.json", "data/gone.json", "RUN.yaml:2: tokenizer: must be a readable tokenizer.json, got "),
        (
            "      text: doc.text",
            "      text: doc.text\n      eos: <e>",
            "RUN.yaml:8: sources.web.transform.eos: must",
        ),
        ("batch:", "strategy: best\nbatch:", "RUN.yaml:16: strategy: must be one of llm_balance, sequential, "),
        ("batch:", "strategy: json:dumps\nbatch:", "RUN.yaml:16: strategy json:dumps: raised TypeError: "),
        ("batch:", "vocab_size: 9\nbatch:", "RUN.yaml:16: vocab_size: must be at least 320, the size of "),
    ],
)
def test_check_when_something_is_wrong_then_the_line_is_named_and_nothing_else_printed(
    spec_file, capsys, old, new, fault
):
    assert failed(capsys, spec_file((old, new)))[0].startswith(fault)


def test_check_when_several_sources_are_wrong_then_each_is_told(spec_file, capsys):
    path = spec_file(("data/web/", "data/wep/"), ("data/chat/", "data/chad/"))
    assert [line.split(":")[1] for line in failed(capsys, path)] == ["5", "9"]


def test_check_when_it_fails_with_json_then_errors_are_on_standard_output_too(spec_file, capsys):
    assert main([str(spec_file(("seq_len: 64", "seq_len: 65"))), "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "ok": False,
        "errors": ["RUN.yaml:16: batch.align: must divide seq_len, got align 16 and seq_len 65"],
    }
    assert "Traceback" not in captured.err


def test_check_when_a_budget_is_below_one_step_then_refused(spec_file, capsys):
    budgets = "budgets: {build_bytes: 65536, window_bytes: 65536}\nbatch:"
    step = "microbatches: [{at: 0, value: 2}, {at: 9, value: 512}]"
    lines = failed(capsys, spec_file(("batch:", budgets), ("microbatches: 2", step)))
    assert lines == [
        "RUN.yaml:16: budgets.build_bytes: must hold one step, 262144 bytes for the 32768 tokens of step 9, got 65536",
        "RUN.yaml:16: budgets.window_bytes: must hold one step, 131072 bytes for the 32768 tokens of step 9, got 65536",
    ]


@pytest.mark.parametrize(
    ("mesh", "fault"),
    [
        ("mesh: {dp: 4}\nbatch:", "RUN.yaml:16: dp must divide microbatches, got dp 4 and 2 microbatches in train"),
        ("mesh: {cp: 4}\nbatch:\n  align: 4", "RUN.yaml:18: 2 * cp must divide align, got cp 4 and align 4"),
        ("mesh: {cp: 8, tp: 8}\nbatch:", "RUN.yaml:18: 2 * cp * tp must divide seq_len, got cp 8, tp 8 and 64 tokens"),
        ("mesh:\n  stage_fields: {labels: 2}\nbatch:", "RUN.yaml:17: stage_fields.labels must name stages in "),
    ],
)
def test_check_when_the_mesh_does_not_fit_then_refused_by_the_rule(spec_file, capsys, mesh, fault):
    assert failed(capsys, spec_file(("batch:", mesh)))[0].startswith(fault)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("batch:", "mesh: {stage_fields: {tokens: middle}}\nbatch:", "must be first, last, all, a stage's number or"),
        ("batch:", "mesh: {stage_fields: {tokens: []}}\nbatch:", "must name at least one stage, got an empty list"),
        ("batch:", "mesh: {stage_fields: {loss_mask: last}}\nbatch:", "unknown key 'loss_mask'; known are"),
        ("batch:", "mesh: {tp_mode: share}\nbatch:", "must be 'read' or 'broadcast', got 'share'"),
    ],
)
def test_check_when_stages_or_tp_mode_are_no_such_then_the_line_names_the_choices(spec_file, capsys, old, new, fault):
    line = failed(capsys, spec_file((old, new)))[0]
    assert line.startswith("RUN.yaml:16: mesh.")
    assert fault in line


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        ("chat: 1", "chat: 0", "mixture.weights.chat: has weight 0 at every step"),
    ],
)
def test_check_when_something_will_surprise_then_warned_and_strict_exits_with_one(spec_file, capsys, old, new, warning):
    path = spec_file((old, new))
    assert main([str(path), "--json"]) == 0
    assert any(text.startswith(warning) for text in json.loads(capsys.readouterr().out)["warnings"])
    assert main([str(path), "--strict"]) == 1
    assert f"warning: {warning}" in capsys.readouterr().out


def test_check_when_the_file_is_missing_then_one_message(tmp_path, capsys):
    lines = failed(capsys, tmp_path / "none.yaml")
    assert len(lines) == 1
    assert lines[0].endswith("none.yaml: cannot be read: No such file or directory")
