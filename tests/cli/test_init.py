from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
import yaml

from loadmaster_flight.spec import load_run_spec
from loadmaster_server.cli import check
from loadmaster_server.cli.columns import Column, guess_column
from loadmaster_server.cli.init import main

EXAMPLES = Path(__file__).parents[2] / "examples/data"


def test_init_when_data_is_found_then_check_accepts_the_spec_as_it_is(data_dir, capsys):
    out = data_dir.parent / "RUN.yaml"
    assert main([str(data_dir), "-o", str(out)]) == 0
    assert check.main([str(out)]) == 0
    spec = load_run_spec(out)
    assert spec.source_names == ["chat", "web"]
    assert spec.sources["web"].transform.text == "doc.text"
    assert spec.sources["chat"].transform.messages == "messages"
    assert spec.sources["chat"].transform.eos is False  # ChatML ends turns by itself
    assert spec.tokenizer == str(data_dir / "tokenizer.json")


def test_init_when_read_by_a_person_then_comments_explain(data_dir):
    out = data_dir.parent / "RUN.yaml"
    main([str(data_dir), "-o", str(out)])
    text = out.read_text()
    assert sum("#" in line for line in text.splitlines()) >= 8
    assert str(data_dir) not in text


def test_init_when_no_tokenizer_is_found_then_the_spec_says_where_to_put_it(data_dir, capsys, monkeypatch):
    (data_dir / "tokenizer.json").unlink()
    monkeypatch.chdir(data_dir.parent)
    assert main(["data"]) == 1
    assert "next: name a tokenizer in RUN.yaml" in capsys.readouterr().err
    assert "# tokenizer: path/to/tokenizer.json" in (data_dir.parent / "RUN.yaml").read_text()


def test_init_when_a_folder_holds_several_formats_then_each_is_a_source(data_dir, tmp_path):
    with gzip.open(data_dir / "web" / "more.jsonl.gz", "wt") as file:
        file.write('{"body": "the hold"}\n')
    out = tmp_path / "out.yaml"
    assert main([str(data_dir), "-o", str(out)]) == 0
    spec = load_run_spec(out)
    assert spec.source_names == ["chat", "web-jsonl", "web-parquet"]
    assert spec.sources["web-jsonl"].transform.text == "body"
    assert check.main([str(out)]) == 0


def test_init_when_files_lie_deep_or_beside_then_exactly_they_are_named(data_dir, tmp_path):
    for name in ("2024", "2025"):
        (data_dir / "news" / name).mkdir(parents=True)
        (data_dir / "news" / name / "a.jsonl").write_text('{"text": "news"}\n')
    (data_dir / "Loose File.jsonl").write_text('{"text": "loose"}\n')
    out = tmp_path / "out.yaml"
    assert main([str(data_dir), "-o", str(out)]) == 0
    uris = {name: source["uri"] for name, source in yaml.safe_load(out.read_text())["sources"].items()}
    assert uris["news"] == "data/news/**/*.jsonl"
    assert uris["data"] == "data/Loose File.jsonl"
    assert check.main([str(out)]) == 0


def test_init_when_a_folder_has_no_content_then_it_is_left_out_with_the_reason(data_dir, tmp_path, capsys):
    (data_dir / "stats").mkdir()
    (data_dir / "stats" / "a.jsonl").write_text('{"count": 3}\n')
    out = tmp_path / "out.yaml"
    assert main([str(data_dir), "-o", str(out)]) == 0
    assert "# stats: left out" in out.read_text()
    assert "left out stats: no column of text, messages or token ids; there are ['count']" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, '{"count": 3}\n'])
def test_init_when_nothing_is_usable_then_nothing_is_written(tmp_path, capsys, content):
    data = tmp_path / "data"
    data.mkdir()
    if content is not None:
        (data / "a.jsonl").write_text(content)
    assert main([str(data), "-o", str(tmp_path / "out.yaml")]) == 2
    assert not (tmp_path / "out.yaml").exists()
    assert "Traceback" not in capsys.readouterr().err


def test_init_when_the_file_exists_then_it_is_kept_unless_forced(data_dir, capsys):
    out = data_dir.parent / "RUN.yaml"
    out.write_text("mine")
    assert main([str(data_dir), "-o", str(out)]) == 2
    assert out.read_text() == "mine"
    assert main([str(data_dir), "-o", str(out), "--force"]) == 0
    assert out.read_text() != "mine"


def test_init_when_the_tokenizer_has_no_end_token_then_eos_is_off_and_check_accepts(data_dir):
    (data_dir / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<none>"}))
    out = data_dir.parent / "RUN.yaml"
    assert main([str(data_dir), "-o", str(out)]) == 0
    assert load_run_spec(out).sources["web"].transform.eos is False
    assert check.main([str(out)]) == 0


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"id": "x" * 99, "text": "short"}, Column(kind="text", path="text")),
        ({"title": "short", "story_text": "a longer text"}, Column(kind="text", path="story_text")),
        ({"doc": {"body": "b", "lang": "en"}, "url": "u" * 50}, Column(kind="text", path="doc.body")),
        ({"text": "t", "input_ids": [1, 2]}, Column(kind="tokens", path="input_ids")),
        ({"text": "t", "lengths": [1, 2]}, Column(kind="text", path="text")),
        ({"lengths": [1, 2]}, Column(kind="tokens", path="lengths")),
        ({"text": "t", "chat": [{"role": "user", "content": "c"}]}, Column(kind="messages", path="chat")),
        ({"__key__": "k", "n": 1, "flags": [True]}, None),
        ({}, None),
    ],
)
def test_guess_when_a_row_has_these_columns_then_the_likeliest_is_taken(row, column):
    assert guess_column([row, dict.fromkeys(row)]) == column


def test_init_when_there_are_media_then_their_columns_and_a_media_section_are_written(tmp_path, capsys):
    out = tmp_path / "RUN.yaml"
    assert main([str(EXAMPLES), "-o", str(out)]) == 0
    spec = load_run_spec(out)
    assert spec.sources["pictures"].transform.text == "txt"
    assert set(spec.sources["pictures"].transform.image) == {"jpg", "png"}
    assert (spec.sources["clips"].format, spec.sources["clips"].transform.video) == ("folder", ("video",))
    assert spec.sources["novel"].transform.media_paths == ()
    assert spec.media.vision is not None
    assert spec.media.audio is None
    assert check.main([str(out)]) == 0


def test_init_when_the_tokenizer_has_no_token_for_media_then_it_says_what_to_complete(data_dir, tmp_path, capsys):
    shutil.copytree(EXAMPLES / "clips", data_dir / "clips")
    out = tmp_path / "RUN.yaml"
    assert main([str(data_dir), "-o", str(out)]) == 1
    assert "say in" in (err := capsys.readouterr().err)
    assert "(<|video_pad|>)" in err
    assert "# not a token of the tokenizer: name one that is, or give an id" in out.read_text()
    out.write_text(out.read_text().replace('"<|video_pad|>"', "3").replace('"<|image_pad|>"', "2"))
    assert check.main([str(out)]) == 0


def test_init_when_media_have_no_text_then_they_are_a_source_of_their_own(data_dir, tmp_path, capsys):
    (data_dir / "films").mkdir()
    shutil.copy(EXAMPLES / "clips/city-1.mp4", data_dir / "films/a.mp4")
    out = tmp_path / "RUN.yaml"
    assert main([str(data_dir), "-o", str(out)]) == 1
    transform = load_run_spec(out).sources["films"].transform
    assert (transform.text, transform.video) == (None, ("video",))
