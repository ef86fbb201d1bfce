"""What can be known before a run starts: check, up and connect refuse it in the same words, each with its place."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import loadmaster
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_server.cli.check import main as check
from support.bad_files import json_lines, sentence
from support.commands import loadmaster_command

NAN = float("nan")
SOUND = json_lines(map(sentence, range(20)))

# Name of the file, its bytes (None: there is none), and what the error says after `source x: sources.x.uri: URI `.
FILES: list[tuple[str, bytes | None, str]] = [
    ("gone.jsonl", None, "names a file that does not exist; check the path"),
    ("gone-*.parquet", None, "is a glob that matches no file; check folder and pattern"),
    ("empty.parquet", b"", "must not be empty: 0 bytes are no parquet file; write it again or leave it out"),
    ("empty.arrow", b"", "must not be empty: 0 bytes are no arrow file"),
    ("empty.tar", b"", "must not be empty: 0 bytes are no webdataset file"),
    ("empty.jsonl.gz", b"", "must not be empty: 0 bytes are no jsonl file"),
    ("empty.jsonl.zst", b"", "must not be empty: 0 bytes are no jsonl file"),
    ("empty.jsonl", b"", "must hold a sample, but every file of the source is empty"),
    ("blank.jsonl", b"\n \n\n", "must hold a sample, but its files have no rows"),
    ("nothing.jsonl.gz", gzip.compress(b""), "must hold a sample, but its files have no rows"),
    ("text.parquet", SOUND, "must end with a parquet footer, it is cut or another format"),
    ("text.jsonl.gz", SOUND, "none of 1 rows can be served: corrupt archive"),
    ("text.jsonl.zst", SOUND, "none of 1 rows can be served: corrupt archive"),
    ("cut.jsonl.gz", gzip.compress(SOUND)[:12], "none of 1 rows can be served: cut archive"),
    ("cut.jsonl.zst", pa.compress(SOUND, "zstd", asbytes=True)[:40], "none of 1 rows can be served: cut archive"),
    ("text.tar", SOUND, "none of 1 rows can be served: corrupt archive"),
    ("cut.tar", b"a.txt" + bytes(200), "none of 1 rows can be served: cut archive"),
    ("broken.jsonl", b'{"text": \n' * 3, "none of 3 rows can be served: broken JSON line"),
    ("binary.jsonl", b'{"text": "\xff"}\n' * 3, "none of 3 rows can be served: invalid UTF-8"),
    ("surrogate.jsonl", b'{"text": "\\ud800"}\n' * 3, "none of 3 rows can be served: lone surrogate"),
    ("null.jsonl", b'{"text": null}\n' * 3, "none of 3 rows can be served: null text (3)"),
    ("other.jsonl", b'{"body": "x"}\n' * 3, "check sources.x.transform (columns of the first row: body)"),
    ("list.jsonl", b'[{"text": "x"}]', "must hold one JSON object a line, got a JSON array"),
]

FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"mixture": {"weights": {"x": NAN}}}, "mixture.weights.x: must be a finite number, got nan"),
    ({"mixture": {"weights": {"x": -1}}}, "mixture.weights.x: must be greater than or equal to 0, got -1.0"),
    ({"mixture": {"weights": {"x": 0}}}, "mixture.weights: must have a positive weight at every step, all are 0"),
    ({"mixture": {"weights": {"x": [{"at": 0, "value": 1}, {"at": 5, "value": 0}]}}}, "all are 0 at step 5"),
    ({"mixture": {"weights": {"x": [{"at": 0, "value": NAN}]}}}, "weights.x.0.value: must be a finite number"),
    ({"mixture": {"weights": {"y": 1}}}, "mixture.weights.y: names no source"),
    ({"tokenizer": "none.json"}, "tokenizer: must be a readable tokenizer.json, got "),
    ({"tokenizer": "run.yaml"}, "tokenizer: not a Hugging Face tokenizers file"),
    ({"vocab_size": 7}, "vocab_size: must be at least 320, the size of "),
    ({"budgets": {"shuffle_bytes": 1}}, "budgets.shuffle_bytes: must be greater than or equal to 65536, got 1"),
    ({"sources": {}}, "sources: must have at least 1 item"),
]


@pytest.fixture
def write_run(tmp_path: Path, tokenizer_file: Path) -> Callable[..., Path]:
    """A run spec over sound data; `uris` by name of the source, and fields that replace its own."""

    def write(uris: dict[str, str] | None = None, **fields: Any) -> Path:
        (tmp_path / "sound.jsonl").write_bytes(SOUND)
        tree = {
            "run": "refused",
            "tokenizer": str(tokenizer_file),
            "sources": {
                name: {"uri": uri, "transform": {"text": "txt" if uri.endswith(".tar") else "text"}}
                for name, uri in (uris or {"x": "sound.jsonl"}).items()
            },
            "batch": {"seq_len": 64, "microbatches": 1},
        }
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(tree | fields, sort_keys=False))
        return path

    return write


def assert_refused(run: Path, rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By `check`, in one line with the YAML line, and by an embedded run, with the same words."""
    assert check([str(run)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"loadmaster check: {run.name}:")
    assert rule in error
    assert len(error.splitlines()) == 1
    with pytest.raises(LoadmasterError) as caught, loadmaster.connect(str(run), framework="numpy") as stream:
        next(stream)
    assert rule in caught.value.message


@pytest.mark.parametrize(("name", "content", "rule"), FILES, ids=[name for name, _, _ in FILES])
def test_source_when_it_cannot_yield_a_sample_then_refused_by_name(
    name: str,
    content: bytes | None,
    rule: str,
    write_run: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert_refused(write_run({"x": name}), rule, capsys)
    check([str(tmp_path / "run.yaml")])
    assert f"run.yaml:5: source x: sources.x.uri: {tmp_path / name} " in capsys.readouterr().err


def test_source_when_its_footer_is_cut_or_its_column_is_not_there_then_refused(
    write_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "a.parquet")
    assert_refused(write_run({"x": "a.parquet"}), "has no column 'text', nor has any other shard", capsys)
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    assert_refused(write_run({"x": "a.parquet"}), "must end with a parquet footer, it is cut", capsys)


@pytest.mark.parametrize(("fields", "rule"), FIELDS, ids=[rule[:40] for _, rule in FIELDS])
def test_spec_when_a_field_is_wrong_then_refused_by_field_rule_and_value(
    fields: dict[str, Any], rule: str, write_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(write_run(**fields), rule, capsys)


def _command(run: Path, command: str, *options: str) -> tuple[int, str]:
    argv = loadmaster_command(command, str(run), *options)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, cwd=run.parent, check=False)
    return done.returncode, done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("is_spec_wrong", [False, True])
def test_commands_when_much_is_wrong_then_each_fault_is_one_line_and_nothing_is_started(
    is_spec_wrong: bool, write_run: Callable[..., Path], tmp_path: Path
) -> None:
    for name, content, _ in FILES:
        if content is not None:
            (tmp_path / name).write_bytes(content)
    uris = {f"s{i}": name for i, (name, _, _) in enumerate(FILES)}
    fields = {"mixture": {"weights": {"s0": NAN, "s1": -1}}} if is_spec_wrong else {}
    run = write_run(uris, **fields)
    expected = ["must be a finite number", "must be greater"] if is_spec_wrong else [rule for *_, rule in FILES]
    for command in ("check", "up"):
        code, error = _command(run, command)
        assert code == 2, error
        lines = error.removeprefix(f"loadmaster {command}: ").splitlines()
        assert len(lines) == len(expected)
        for line, rule in zip(lines, expected, strict=True):
            assert line.startswith("run.yaml:")
            assert rule.replace("sources.x.", f"sources.{line.split()[2][:-1]}.") in line
    assert not (tmp_path / ".loadmaster").exists()


def test_report_when_json_is_asked_for_then_faults_are_in_it(write_run: Callable[..., Path], tmp_path: Path) -> None:
    argv = loadmaster_command("check", str(write_run({"x": "gone.jsonl", "y": "gone.tar"})), "--json")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, cwd=tmp_path, check=False)
    report = json.loads(done.stdout)
    assert (report["ok"], len(report["errors"])) == (False, 2)
