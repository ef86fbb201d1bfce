"""`loadmaster peek URI|RUN.yaml[:source] -n 3`: samples exactly as a run would transform them, with their verdicts."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec import RunSpec, SourceFormat, SourceManifest, SourceSpec, load_run_spec
from loadmaster_flight.spec.model import near
from loadmaster_flight.transforms import build_transform
from loadmaster_flight.transforms.tokenizer import open_tokenizer
from loadmaster_flight.wire.errors import LoadmasterError, SpecError
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_server.freezing import freeze_run

from .columns import first_rows, guess_column, whole_row_source
from .failures import failing_cleanly, with_lines
from .samples import PeekedSample, rows_in_run_order, transformed, untransformed
from .tokenizer_search import find_tokenizer

SPEC_TARGET = re.compile(r"(?P<path>.+\.ya?ml)(?::(?P<source>[^/]+))?")
STYLES = {Verdict.OK: "green", Verdict.SKIPPED: "yellow", Verdict.BAD: "red"}
ANY_VOCABULARY = 1 << 31
CONTENT_KINDS = ("text", "messages", "tokens", "function")


@failing_cleanly("peek")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    args = _parser().parse_args(argv)
    match = SPEC_TARGET.fullmatch(args.target)
    samples = _of_spec(Path(match["path"]), match["source"], args) if match else _of_uri(args)
    _print(samples, is_json=args.json)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loadmaster peek", description=__doc__)
    parser.add_argument("target", metavar="URI|RUN.yaml[:source]", help="files (a path, glob or s3://), or a run spec")
    parser.add_argument("-n", "--num", type=_positive, default=3, help="samples of each source (default 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    files = parser.add_argument_group("for files without a run spec")
    files.add_argument("--tokenizer", help="a tokenizer.json (default: one beside or above the files)")
    content = files.add_mutually_exclusive_group()
    for kind in CONTENT_KINDS:
        content.add_argument(f"--{kind}", help=f"as {kind} of a transform (default: guessed)")
    formats = [kind.value for kind in SourceFormat]
    files.add_argument("--format", choices=formats, default="auto", help="of the files (default: by extension)")
    files.add_argument("--seed", type=int, default=0, help="of the order (default 0)")
    files.add_argument("--storage-option", action="append", default=[], metavar="KEY=VALUE", help="for s3:// and such")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _of_spec(path: Path, source: str | None, args: argparse.Namespace) -> Iterator[PeekedSample]:
    spec = load_run_spec(path)
    if source is not None and source not in spec.sources:
        raise SpecError(f"{path.name} has no source {source!r}; {near(source, spec.sources)}")
    names = [source] if source is not None else spec.source_names
    try:
        manifests = freeze_run(spec, only=names)
        for manifest in manifests:
            yield from itertools.islice(_transformed_samples(spec, manifest), args.num)
    except LoadmasterError as error:
        raise with_lines(error, path) from error


def _transformed_samples(spec: RunSpec, manifest: SourceManifest) -> Iterator[PeekedSample]:
    transform = build_transform(spec, manifest.name)
    with SourceReader(manifest, spec.sources[manifest.name]) as reader:
        for lane, rows in rows_in_run_order(reader, manifest, spec.seed):
            yield transformed(lane, rows, manifest, transform)


def _of_uri(args: argparse.Namespace) -> Iterator[PeekedSample]:
    """Peek at files: as a run of this one source, or as they are where nothing says how to make tokens."""
    options = dict(option.partition("=")[::2] for option in args.storage_option)
    whole, manifest = whole_row_source([args.target], SourceFormat(args.format), options)
    content = _content(args, whole, manifest)
    tokenizer = args.tokenizer or find_tokenizer(Path(manifest.shards[0].uri).parent)
    missing = "column" if not content else "tokenizer" if tokenizer is None and "tokens" not in content else None
    if missing is not None:
        advice = f"no {missing} found, so rows are shown as they are; name one, see --help"
        Console(stderr=True).print(advice, style="yellow", highlight=False, soft_wrap=True)
        samples = _untransformed_samples(args.seed, whole, manifest)
    else:
        source = {"uri": args.target, "format": args.format, "storage_options": options}
        spec = _one_source_run(source, content, seed=args.seed, tokenizer=tokenizer)
        samples = _transformed_samples(spec, freeze_run(spec)[0])
    return itertools.islice(samples, args.num)


def _content(args: argparse.Namespace, whole: SourceSpec, manifest: SourceManifest) -> dict[str, str]:
    """What the caller said about the content, or a guess."""
    given = {kind: getattr(args, kind) for kind in CONTENT_KINDS if getattr(args, kind)}
    if given:
        return given
    column = guess_column(first_rows(whole, manifest))
    return {column.kind: column.path} if column is not None else {}


def _one_source_run(
    source: dict[str, Any], content: dict[str, str], *, seed: int, tokenizer: str | Path | None
) -> RunSpec:
    needs_eos = tokenizer is not None and "messages" not in content  # as init writes it: ChatML ends turns by itself
    has_eos = needs_eos and "eos" in open_tokenizer(str(tokenizer), field="--tokenizer").own_tokens
    return RunSpec.model_validate(
        {
            "run": "peek",
            "seed": seed,
            "tokenizer": str(tokenizer) if tokenizer is not None else None,
            "vocab_size": None if tokenizer is not None else ANY_VOCABULARY,
            "sources": {"files": source | {"transform": {**content, "eos": has_eos}}},
            "batch": {"seq_len": 16, "microbatches": 1},
        }
    )


def _untransformed_samples(seed: int, spec: SourceSpec, manifest: SourceManifest) -> Iterator[PeekedSample]:
    with SourceReader(manifest, spec) as reader:
        for lane, rows in rows_in_run_order(reader, manifest, seed):
            yield untransformed(lane, rows, manifest)


def _print(samples: Iterator[PeekedSample], *, is_json: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for sample in samples:
        if is_json:
            print(sample.to_line(), flush=True)
        else:
            console.print(_heading(sample))
            console.print(sample.text, end="\n\n")


def _heading(sample: PeekedSample) -> Text:
    heading = Text(f"{sample.source} shard {sample.shard} block {sample.block} row {sample.row}  ", "bold")
    heading.append(sample.verdict.name.lower(), STYLES[sample.verdict])
    if sample.reason is not None:
        heading.append(f": {sample.reason}")
    elif sample.num_tokens is not None:
        heading.append(f"  {sample.num_tokens:,} tokens")
    return heading.append(f"  {sample.uri}", "dim")
