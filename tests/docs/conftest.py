"""A folder with the data that the how-tos speak of."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from support.energon_writer import CAPTIONS, write_energon
from support.mds_writer import write_mds

ROOT = Path(__file__).parents[2]
NUM_TEXTS = 120


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Sentences of 5 to 60 words."""
    rng, words = random.Random(5), ["the", "loader", "reads", "every", "manifest", "and", "balances", "weight"]
    return [" ".join(rng.choices(words, k=rng.randint(5, 60))) for _ in range(NUM_TEXTS)]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """data/: Parquet, MDS, tar, Energon, JSONL, CSV and the demo's tokenizer."""
    folder = tmp_path_factory.mktemp("docs") / "data"
    (folder / "web").mkdir(parents=True)
    shutil.copy(ROOT / "examples/data/tokenizer.json", folder / "tokenizer.json")
    for part in range(2):
        pq.write_table(pa.table({"text": texts[part::2]}), folder / f"web/part-{part:03}.parquet", row_group_size=20)
    for name in ("web", "code"):
        write_mds(folder / "mds" / name, {"text": "str"}, [[{"text": text} for text in texts]])
    _write_tars(folder / "shards", texts)
    for name in ("coco", "charts"):
        write_energon(folder / name, dataset=CAPTIONS, images=_pictures())
    (folder / "logs").mkdir()
    turns = [{"log": [{"who": "a", "says": text}, {"who": "b", "says": "yes"}]} for text in texts]
    (folder / "logs" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in turns))
    (folder / "table.csv").write_text("id,body\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts)))
    return folder


@pytest.fixture
def workplace(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory with data/ in it, whose modules are found and forgotten again."""
    (tmp_path / "data").symlink_to(data, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def _write_tars(folder: Path, texts: list[str]) -> None:
    folder.mkdir()
    for shard in range(2):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as archive:
            for i, text in enumerate(texts[shard::2]):
                info = tarfile.TarInfo(f"{i:04}.txt")
                info.size = len(text.encode())
                archive.addfile(info, io.BytesIO(text.encode()))


def _pictures() -> list[bytes]:
    found = []
    for i in range(4):
        buffer = io.BytesIO()
        Image.new("RGB", (48 + 8 * i, 40), (40 * i, 90, 200 - 40 * i)).save(buffer, "JPEG")
        found.append(buffer.getvalue())
    return found
