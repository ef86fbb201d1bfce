from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec import load_run_spec
from loadmaster_flight.transforms import build_transform
from loadmaster_server.cli.peek import main
from loadmaster_server.cli.samples import rows_in_run_order
from loadmaster_server.freezing import freeze_run


def peeked(capsys, *argv) -> list[dict]:
    assert main([str(arg) for arg in [*argv, "--json"]]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_peek_when_a_spec_is_named_then_each_source_shows_samples(spec_file, capsys):
    samples = peeked(capsys, spec_file(), "-n", 2)
    assert [sample["source"] for sample in samples] == ["web", "web", "chat", "chat"]


def test_peek_when_one_source_is_named_then_its_rows_come_in_the_runs_order(spec_file, capsys):
    path = spec_file()
    samples = peeked(capsys, f"{path}:web", "-n", 40)
    spec = load_run_spec(path)
    manifest = freeze_run(spec, only=["web"])[0]
    with SourceReader(manifest, spec.sources["web"]) as reader:
        want = [(r.shard, r.block, int(r.rows[0])) for _, r in rows_in_run_order(reader, manifest, spec.seed)]
    assert [(s["shard"], s["block"], s["row"]) for s in samples] == want
    assert len(set(want)) == 40


def test_peek_when_a_sample_is_ok_then_digest_and_length_are_of_the_runs_tokens(spec_file, capsys):
    path = spec_file()
    sample = peeked(capsys, f"{path}:web", "-n", 1)[0]
    spec = load_run_spec(path)
    manifest = freeze_run(spec, only=["web"])[0]
    with SourceReader(manifest, spec.sources["web"]) as reader:
        block = reader.read_block(sample["shard"], sample["block"])
        tokens = build_transform(spec, "web").measure(block, np.array([sample["row"]])).tokens
    digest = hashlib.sha256(tokens.tobytes()).hexdigest()
    assert sample["num_tokens"] == len(tokens)
    assert sample["fields"] == [{"name": "tokens", "dtype": "int32", "shape": [len(tokens)], "digest": digest}]


def test_peek_when_rows_are_skipped_or_bad_then_they_are_shown_with_their_reason(spec_file, capsys):
    samples = peeked(capsys, f"{spec_file()}:chat", "-n", 50)
    assert len(samples) == 14
    verdicts = {sample["row"]: (sample["verdict"], sample["reason"]) for sample in samples}
    assert verdicts[12] == ("skipped", "null messages")
    assert verdicts[13][0] == "bad"
    assert [v for v, _ in verdicts.values()].count("ok") == 12
    assert [f["name"] for f in samples[0]["fields"]] in (["tokens", "loss_spans"], [])


def test_peek_when_read_by_a_person_then_text_is_decoded(spec_file, capsys):
    assert main([f"{spec_file()}:chat", "-n", "14"]) == 0
    out = capsys.readouterr().out
    assert "<|im_start|>assistant\n3!<|im_end|>" in out
    assert "skipped: null messages" in out


def test_peek_when_files_are_named_then_column_and_tokenizer_are_found(data_dir, capsys):
    samples = peeked(capsys, data_dir / "web" / "*.parquet", "-n", 3)
    assert [sample["verdict"] for sample in samples] == ["ok"] * 3
    assert all(sample["num_tokens"] > 1 for sample in samples)


def test_peek_when_there_is_no_tokenizer_then_rows_are_shown_as_they_are(data_dir, capsys, monkeypatch):
    (data_dir / "tokenizer.json").unlink()
    monkeypatch.chdir(data_dir)
    assert main([str(data_dir / "web" / "*.parquet"), "-n", "1", "--json"]) == 0
    captured = capsys.readouterr()
    sample = json.loads(captured.out)
    assert "no tokenizer found" in captured.err
    assert sample["num_tokens"] is None
    assert {field["name"]: field["dtype"] for field in sample["fields"]} == {"id": "string", "doc": "json"}


def test_peek_when_ids_need_no_tokenizer_then_they_are_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.jsonl").write_text('{"input_ids": [7, 8, 9]}\n')
    sample = peeked(capsys, tmp_path / "ids.jsonl")[0]
    assert sample["num_tokens"] == 3
    assert sample["fields"][0]["digest"] == hashlib.sha256(np.array([7, 8, 9], np.int32).tobytes()).hexdigest()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{spec}:wep", "RUN.yaml has no source 'wep'; did you mean 'web'?"),
        ("{folder}/none.yaml", "none.yaml: cannot be read: No such file or directory"),
        ("{folder}/none*.jsonl", "is a glob that matches no file"),
    ],
)
def test_peek_when_the_target_is_not_there_then_one_message_and_two(spec_file, capsys, target, message):
    path = spec_file()
    assert main([target.format(spec=path, folder=path.parent)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_peek_when_a_source_is_broken_then_the_line_of_the_spec_is_named(spec_file, capsys):
    assert main([str(spec_file(("doc.text", "doc.nope")))]) == 2
    assert "RUN.yaml:7: source web: " in capsys.readouterr().err
