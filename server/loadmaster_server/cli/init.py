"""`loadmaster init DATA_DIR | --from METADATASET`: write a commented starter spec from a folder or a metadataset."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loadmaster_flight.spec import load_run_spec
from loadmaster_flight.transforms.tokenizer import open_tokenizer
from loadmaster_flight.wire.errors import BadRequestError, SourceError

from .adopt import adopt, spec_text
from .failures import failing_cleanly
from .scan import FoundSource, scan_folder
from .starter import TOKENS_OF, StarterSpec
from .tokenizer_search import find_tokenizer

INCOMPLETE = 1


@failing_cleanly("init")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command.

    Returns:
        0 when `check` accepts the spec as it is, 1 when it was written but a tokenizer must be named first, 2 when
        nothing was written.
    """
    args = _parser().parse_args(argv)
    out = Path(args.out)
    if (args.data_dir is None) == (args.metadataset is None):
        raise BadRequestError("give either DATA_DIR or --from METADATASET")
    if out.exists() and not args.force:
        raise BadRequestError(f"{out} is there already: name another file with -o, or overwrite it with --force")
    if args.metadataset is not None:
        return _take_over(Path(args.metadataset), out, args)
    folder = Path(args.data_dir)
    if not folder.is_dir():
        raise BadRequestError(f"DATA_DIR must be a folder, got {args.data_dir!r}")
    starter = _starter(folder, out, args.tokenizer, args.run)
    if not starter.usable:
        raise SourceError(_nothing_usable(folder, starter.sources))
    out.write_text(starter.to_yaml(), encoding="utf-8")
    return _report(starter, out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loadmaster init", description=__doc__)
    folder = "a folder; each sub-folder and format becomes a source"
    parser.add_argument("data_dir", nargs="?", metavar="DATA_DIR", help=folder)
    metadataset = "a Megatron-Energon metadataset.yaml: a source a dataset, with the shares of its blend"
    parser.add_argument("--from", dest="metadataset", metavar="METADATASET", help=metadataset)
    parser.add_argument("--split", default="train", help="of the metadataset (default train)")
    parser.add_argument("-o", "--out", default="RUN.yaml", help="the file to write (default RUN.yaml)")
    parser.add_argument("--tokenizer", help="a tokenizer.json (default: the nearest one)")
    parser.add_argument("--run", default="my-run", help="name of the run (default my-run)")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    return parser


def _take_over(path: Path, out: Path, args: argparse.Namespace) -> int:
    sources = adopt(path, args.split)
    tokenizer = Path(args.tokenizer) if args.tokenizer else find_tokenizer(path.absolute().parent)
    text = spec_text(sources, path=path, split=args.split, out=out, run=args.run, tokenizer=tokenizer)
    out.write_text(text, encoding="utf-8")
    print(f"wrote {out} with {len(sources)} source{'s' if len(sources) != 1 else ''}")
    for source in sources:
        for note in source.notes:
            print(f"{source.name}: {note}", file=sys.stderr)
    load_run_spec(out)
    is_complete = tokenizer is not None and all(source.content for source in sources)
    print(f"next: {'' if is_complete else 'complete it, then '}loadmaster check {out}")
    return 0 if is_complete else INCOMPLETE


def _starter(folder: Path, out: Path, tokenizer: str | None, run: str) -> StarterSpec:
    found = Path(tokenizer) if tokenizer else find_tokenizer(folder)
    opened = open_tokenizer(str(found), field="--tokenizer") if found is not None else None
    return StarterSpec(
        file=out.name,
        run=run,
        prefix=_prefix(folder, out.absolute().parent),
        tokenizer=os.path.relpath(found, out.absolute().parent) if found is not None else None,
        has_eos=opened is not None and "eos" in opened.own_tokens,
        sources=scan_folder(folder),
        known_tokens=[text for text in TOKENS_OF.values() if opened is not None and opened.token_id(text) is not None],
    )


def _prefix(folder: Path, base: Path) -> str:
    relative = Path(os.path.relpath(folder, base)).as_posix()
    return "" if relative == "." else f"{relative}/"


def _nothing_usable(folder: Path, sources: Sequence[FoundSource]) -> str:
    if not sources:
        return f"{folder}: no file has an extension of a known format (.parquet, .jsonl, .jsonl.gz, .arrow, .tar, ...)"
    return "\n".join(f"{folder / source.uris[0]}: {source.fault}" for source in sources)


def _report(starter: StarterSpec, out: Path) -> int:
    print(f"wrote {out} with {len(starter.usable)} source{'s' if len(starter.usable) != 1 else ''}")
    for source in starter.sources:
        if not source.is_usable:
            print(f"left out {source.name}: {source.fault}", file=sys.stderr)
    load_run_spec(out)
    if starter.tokenizer is None:
        print(f"next: name a tokenizer in {out} (or run init --tokenizer FILE), then loadmaster check", file=sys.stderr)
        return INCOMPLETE
    if starter.unknown_tokens:
        missing = ", ".join(starter.unknown_tokens)
        print(f"next: say in {out} which tokens stand for media ({missing}), then loadmaster check", file=sys.stderr)
        return INCOMPLETE
    print(f"next: loadmaster check {out}")
    return 0
