"""`loadmaster peek URI|RUN.yaml[:source] -n 3`: samples exactly as a run would transform them, with their verdicts.

Media are decoded too; `--out DIR` writes them as PNG and WAV beside the text.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from loadmaster_flight.sources.media_files import MediaFiles
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec import RunSpec, SourceFormat, SourceManifest, SourceSpec, load_run_spec
from loadmaster_flight.spec.model import near
from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.transforms import build_transform
from loadmaster_flight.transforms.media import NO_ACCESS
from loadmaster_flight.transforms.tokenizer import TokenizerFile, open_tokenizer
from loadmaster_flight.wire.errors import BadRequestError, LoadmasterError, SpecError
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_server.freezing import freeze_run
from loadmaster_server.planning.limits import LengthLimits
from loadmaster_server.planning.placement import costs_of
from loadmaster_server.planning.rules import rules_of

from .columns import first_rows, guess_column, whole_row_source
from .failures import failing_cleanly, with_lines
from .media_columns import MEDIA_KINDS, guess_media, without_media
from .samples import MAX_CHARS, PeekedSample, Peeker, rows_in_run_order, untransformed
from .tokenizer_search import find_tokenizer

SPEC_TARGET = re.compile(r"(?P<path>.+\.ya?ml)(?::(?P<source>[^/]+))?")
STYLES = {"ok": "green", "skipped": "yellow", "bad": "red", "masked": "magenta"}
ANY_VOCABULARY = 1 << 31
CONTENT_KINDS = ("text", "messages", "tokens", "function")
PLACEHOLDERS = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "audio_token": "<|audio_pad|>"}


@failing_cleanly("peek")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    args = _parser().parse_args(argv)
    match = SPEC_TARGET.fullmatch(args.target)
    samples = _of_spec(Path(match["path"]), match["source"], args) if match else _of_uri(args)
    out = None if args.out is None else _folder(args.out)
    for sample in samples:
        _print(sample, _written(sample, out) if out is not None else [], is_json=args.json)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loadmaster peek", description=__doc__)
    parser.add_argument("target", metavar="URI|RUN.yaml[:source]", help="files (a path, glob or s3://), or a run spec")
    parser.add_argument("-n", "--num", type=_positive, default=3, help="samples of each source (default 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument(
        "--out", metavar="DIR", help="write each sample's text, its pictures (PNG) and sound (WAV) there"
    )
    files = parser.add_argument_group("for files without a run spec")
    files.add_argument("--tokenizer", help="a tokenizer.json (default: one beside or above the files)")
    content = files.add_mutually_exclusive_group()
    for kind in CONTENT_KINDS:
        content.add_argument(f"--{kind}", help=f"as {kind} of a transform (default: guessed)")
    for kind in MEDIA_KINDS:
        files.add_argument(
            f"--{kind}", action="append", metavar="COLUMN", help=f"a column of {kind} (default: guessed)"
        )
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
            limits = rules_of(spec, TRAIN).shape_at(0).limits
            yield from itertools.islice(_transformed_samples(spec, manifest, limits), args.num)
    except LoadmasterError as error:
        raise with_lines(error, path) from error


def _transformed_samples(
    spec: RunSpec, manifest: SourceManifest, limits: LengthLimits | None = None
) -> Iterator[PeekedSample]:
    transform, source = build_transform(spec, manifest.name), spec.sources[manifest.name]
    backbone, encoder = costs_of(spec.model)
    peeker = Peeker(manifest=manifest, transform=transform, limits=limits, backbone=backbone, encoder=encoder)
    with SourceReader(manifest, source) as reader, closing(MediaFiles(manifest, source)) as files:
        for lane, rows in rows_in_run_order(reader, manifest, spec.seed):
            access = NO_ACCESS if transform.media is None else transform.media.access(files, rows.shard)
            yield peeker.peek(lane, rows, access)


def _of_uri(args: argparse.Namespace) -> Iterator[PeekedSample]:
    """Peek at files: as a run of this one source, or as they are where nothing says how to make tokens."""
    options = dict(option.partition("=")[::2] for option in args.storage_option)
    whole, manifest = whole_row_source([args.target], SourceFormat(args.format), options)
    content, media = _content(args, whole, manifest)
    shard = Path(manifest.shards[0].uri)
    found = args.tokenizer or find_tokenizer(shard if shard.is_dir() else shard.parent)
    needs_tokenizer = bool({"text", "messages"} & set(content))
    missing = "column" if not content and not media else "tokenizer" if found is None and needs_tokenizer else None
    if missing is not None:
        advice = f"no {missing} found, so rows are shown as they are; name one, see --help"
        Console(stderr=True).print(advice, style="yellow", highlight=False, soft_wrap=True)
        samples = _untransformed_samples(args.seed, whole, manifest)
    else:
        tokenizer = None if found is None else open_tokenizer(str(found), field="--tokenizer")
        source = {"uri": args.target, "format": args.format, "storage_options": options}
        spec = _one_source_run(source, content, media, seed=args.seed, tokenizer=tokenizer)
        samples = _transformed_samples(spec, freeze_run(spec)[0])
    return itertools.islice(samples, args.num)


def _content(
    args: argparse.Namespace, whole: SourceSpec, manifest: SourceManifest
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """What the caller said about the content, or a guess: its column by kind, and columns of media by kind."""
    content = {kind: getattr(args, kind) for kind in CONTENT_KINDS if getattr(args, kind)}
    media = {kind: getattr(args, kind) for kind in MEDIA_KINDS if getattr(args, kind)}
    if content and (media or "tokens" in content or "function" in content):
        return content, media
    rows = first_rows(whole, manifest)
    media = media or guess_media(rows)
    column = None if content else guess_column(without_media(rows, media))
    guessed = {column.kind: column.path} if column is not None and not (media and column.kind == "tokens") else {}
    return content or guessed, media


def _one_source_run(
    source: dict[str, Any],
    content: dict[str, str],
    media: dict[str, list[str]],
    *,
    seed: int,
    tokenizer: TokenizerFile | None,
) -> RunSpec:
    needs_eos = tokenizer is not None and "messages" not in content  # as init writes it: ChatML ends turns by itself
    has_eos = needs_eos and tokenizer is not None and "eos" in tokenizer.own_tokens
    return RunSpec.model_validate(
        {
            "run": "peek",
            "seed": seed,
            "tokenizer": None if tokenizer is None else str(tokenizer.path),
            "vocab_size": None if tokenizer is not None and not media else ANY_VOCABULARY,
            "sources": {"files": source | {"transform": {**content, **media, "eos": has_eos}}},
            "media": _media_section(tokenizer) if media else {},
            "batch": {"seq_len": 16, "microbatches": 1},
        }
    )


def _media_section(tokenizer: TokenizerFile | None) -> dict[str, dict[str, str | int]]:
    """The defaults, with ids beyond any vocabulary for placeholders that the tokenizer does not know."""
    tokens: dict[str, str | int] = {
        field: text if tokenizer is not None and tokenizer.token_id(text) is not None else ANY_VOCABULARY - 1 - number
        for number, (field, text) in enumerate(PLACEHOLDERS.items())
    }
    vision = {field: tokens[field] for field in ("image_token", "video_token")}
    return {"vision": vision, "audio": {"audio_token": tokens["audio_token"]}}


def _untransformed_samples(seed: int, spec: SourceSpec, manifest: SourceManifest) -> Iterator[PeekedSample]:
    with SourceReader(manifest, spec) as reader:
        for lane, rows in rows_in_run_order(reader, manifest, seed):
            yield untransformed(lane, rows, manifest)


def _folder(path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequestError(f"--out must be a folder that can be written, got {path!r}: {error.strerror}") from error
    return folder


def _written(sample: PeekedSample, folder: Path) -> list[Path]:
    """Write the text of a sample, whole, and what its media look and sound like."""
    text = folder / f"{sample.name}.txt"
    text.write_text(f"{_heading(sample).plain}\n\n{sample.text.plain}\n", "utf-8", errors="replace")
    paths = [text]
    if sample.media is not None and not sample.is_masked:
        for name, item in sample.media.files():
            paths.append(folder / f"{sample.name}-{name}")
            sample.media.write(item, paths[-1])
    return paths


def _print(sample: PeekedSample, files: Sequence[Path], *, is_json: bool) -> None:
    if is_json:
        print(sample.to_line(files), flush=True)
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(_heading(sample))
    for field in sample.fields:
        console.print(f"  {field.name} {field.dtype} {list(field.shape)}", style="dim")
    for path in files:
        console.print(f"  wrote {path}", style="dim")
    console.print(_short(sample.text), end="\n\n")


def _short(text: Text) -> Text:
    """As much as fits a terminal."""
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS].append(f" ... ({len(text):,} characters)")


def _heading(sample: PeekedSample) -> Text:
    heading = Text(f"{sample.source} shard {sample.shard} block {sample.block} row {sample.row}  ", "bold")
    heading.append(sample.verdict_name, STYLES[sample.verdict_name])
    if sample.reason is not None:
        heading.append(f": {sample.reason}")
    if sample.num_tokens is not None and sample.verdict is Verdict.OK:
        heading.append(f"  {sample.num_tokens:,} tokens")
        costs = ", ".join(f"{name} {cost:.3g}" for name, cost in sample.cost.items())
        heading.append(f"  cost {costs}")
    return heading.append(f"  {sample.uri}", "dim")
