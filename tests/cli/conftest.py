"""Small folders of data, and run specs over them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

WORDS = ["the", "loadmaster", "reads", "the", "manifest", "and", "balances", "the", "weight", "over", "the", "hold"]
SPEC = """\
run: test
tokenizer: data/tokenizer.json
sources:
  web:
    uri: data/web/*.parquet
    transform:
      text: doc.text
  chat:
    uri: data/chat/*.jsonl
    transform:
      messages: messages
mixture:
  weights:
    web: 3
    chat: 1
batch:
  seq_len: 64
  microbatches: 2
"""


def sentence(number: int) -> str:
    return f"{number}: " + " ".join(WORDS[: 1 + number % len(WORDS)])


@pytest.fixture
def data_dir(tmp_path: Path, tokenizer_file: Path) -> Path:
    """web: two Parquet files of two row groups (nested text); chat: one JSONL file; a tokenizer."""
    data = tmp_path / "data"
    for name in ("web", "chat"):
        (data / name).mkdir(parents=True)
    shutil.copy(tokenizer_file, data / "tokenizer.json")
    for shard in range(2):
        rows = [{"id": f"{shard}-{n}", "doc": {"text": sentence(n), "lang": "en"}} for n in range(20)]
        pq.write_table(pa.Table.from_pylist(rows), data / "web" / f"part-{shard}.parquet", row_group_size=10)
    turns = [[{"role": "user", "content": sentence(n)}, {"role": "assistant", "content": f"{n}!"}] for n in range(12)]
    lines = [json.dumps({"messages": messages}) for messages in turns]
    (data / "chat" / "a.jsonl").write_text("\n".join([*lines, '{"messages": null}', "{broken", ""]))
    return data


SpecFactory = Callable[..., Path]


@pytest.fixture
def spec_file(data_dir: Path) -> SpecFactory:
    """Writes SPEC with pieces of text replaced and returns its path."""

    def make(*replacements: tuple[str, str]) -> Path:
        text = SPEC
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new, 1)
        path = data_dir.parent / "RUN.yaml"
        path.write_text(text)
        return path

    return make
