"""Taking over a Megatron-Energon metadataset: a run spec with a source a dataset and the shares of its blend."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadmaster_flight.sources.energon import has_code, open_dataset
from loadmaster_flight.sources.files import FileStore
from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.spec import SourceFormat, SourceSpec
from loadmaster_flight.wire.errors import SourceError

from .columns import WHOLE_ROWS, first_rows, guess_column
from .media_columns import guess_media
from .metadataset import BlendedDataset, read_metadataset
from .scan import as_name
from .starter import MICROBATCHES, SEQ_LEN

HEAD = """\
# From {path}, split {split}. Nothing was converted: the shards are read where they lie.
# `loadmaster check {file}` opens every source; `loadmaster peek {file}` shows samples as the run will transform them.

run: {run}
seed: 0
"""
NO_TOKENIZER = (
    "# tokenizer: path/to/tokenizer.json   # none was found; relative paths start at the folder of this file\n"
)
VISION = """
media:
  vision:                   # the convention of Qwen2-VL; names of the tokenizer's placeholder tokens:
    image_token: "<|image_pad|>"
    video_token: "<|video_pad|>"
"""
AUDIO = '  audio:\n    audio_token: "<|audio_pad|>"\n'
TAIL = """
batch:
  seq_len: {seq_len}             # tokens of a microbatch
  microbatches: {microbatches}           # of one optimizer step, all ranks together
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedSource:
    """One dataset of the blend as a source.

    Attributes:
        share: Of the blend's samples; all shares sum to 1.
        content: Field of the transform -> columns.
        notes: What a person should look at.
    """

    name: str
    dataset: BlendedDataset
    format: SourceFormat
    share: float
    content: Mapping[str, list[str]]
    notes: Sequence[str]


def adopt(path: Path, split: str) -> list[AdoptedSource]:
    """Read a metadataset and look at a few samples of each of its datasets.

    Raises:
        SourceError: The metadataset or one of its datasets cannot be used; names it.
    """
    blended = read_metadataset(path, split)
    if not blended:
        raise SourceError(f"{path}: split {split} has no dataset with a share")
    weights = [_weight(dataset) for dataset in blended]
    names = list(_names(blended, split))
    return [
        _adopted(name, dataset, weight / sum(weights))
        for name, dataset, weight in zip(names, blended, weights, strict=True)
    ]


def _weight(dataset: BlendedDataset) -> float:
    """Shares of samples; how often a dataset is repeated becomes one by its size."""
    if not dataset.is_repeated:
        return dataset.weight
    found = None
    if not dataset.folder.endswith(".jsonl"):
        found = open_dataset(FileStore({}, source=dataset.folder), dataset.folder, dataset.folder, dataset.split)
    if found is None or found.num_samples is None:
        raise SourceError(f"{dataset.folder}: blend_epochized needs the number of samples: run `energon prepare`")
    return dataset.weight * found.num_samples


def _names(blended: Sequence[BlendedDataset], split: str) -> Iterator[str]:
    taken: set[str] = set()
    for dataset in blended:
        base = os.path.basename(dataset.folder.rstrip("/")).removesuffix(".jsonl")
        wanted = as_name(base if dataset.split == split else f"{base}-{dataset.split}")
        name, number = wanted, 2
        while name in taken:
            name, number = f"{wanted[:58]}-{number}", number + 1
        taken.add(name)
        yield name


def _adopted(name: str, dataset: BlendedDataset, share: float) -> AdoptedSource:
    is_lines = dataset.folder.endswith(".jsonl")
    kind = SourceFormat.JSONL if is_lines else SourceFormat.ENERGON
    split = "train" if is_lines else dataset.split
    spec = SourceSpec(uri=dataset.folder, format=kind, split=split, transform=WHOLE_ROWS, lanes=1)
    manifest = freeze_source(
        name, 0, spec, base_dir=Path.cwd(), shuffle_bytes=spec.block_bytes, fingerprint="", progress=None
    )
    content = guess_content(first_rows(spec, manifest))
    notes = [f"{key} of the metadataset is not kept" for key in dataset.ignored]
    if not is_lines and has_code(FileStore({}, source=name), name, dataset.folder):
        notes.append("its sample_loader is not run: columns are the members of the tar files")
    if not content:
        notes.append("no column of text or media was found: say which in transform")
    return AdoptedSource(name=name, dataset=dataset, format=kind, share=share, content=content, notes=notes)


def guess_content(rows: Sequence[Mapping[str, object]]) -> dict[str, list[str]]:
    """Columns by field of a transform: media by their values, then text, chats or ids."""
    content = guess_media(rows)
    column = guess_column(rows)
    if column is not None and not (content and column.kind == "tokens"):
        content[column.kind] = [column.path]
    return content


def spec_text(
    sources: Sequence[AdoptedSource], *, path: Path, split: str, out: Path, run: str, tokenizer: Path | None
) -> str:
    """The run spec as YAML, with what a person should look at."""
    base = out.absolute().parent
    named = NO_TOKENIZER if tokenizer is None else f"tokenizer: {json.dumps(os.path.relpath(tokenizer, base))}\n"
    kinds = {kind for source in sources for kind in source.content}
    media = VISION if kinds & {"image", "video"} else ""
    if "audio" in kinds:
        media = (media or "\nmedia:\n") + AUDIO
    shares = "".join(f"    {source.name}: {source.share:.6g}\n" for source in sources)
    mixture = f"\nmixture:\n  unit: samples             # as the blend counts\n  weights:\n{shares}"
    return (
        HEAD.format(path=os.path.relpath(path, base), split=split, file=out.name, run=run)
        + f"{named}\nsources:\n"
        + "".join(_source_text(source, base) for source in sources)
        + mixture
        + media
        + TAIL.format(seq_len=SEQ_LEN, microbatches=MICROBATCHES)
    )


def _source_text(source: AdoptedSource, base: Path) -> str:
    folder = source.dataset.folder
    uri = folder if "://" in folder else os.path.relpath(folder, base)
    lines = [f"  {source.name}:", *(f"    # {note}" for note in source.notes), f"    uri: {json.dumps(uri)}"]
    lines.append(f"    format: {source.format.value}")
    if source.format is SourceFormat.ENERGON and source.dataset.split != "train":
        lines.append(f"    split: {json.dumps(source.dataset.split)}")
    lines.append("    transform:")
    for kind, columns in source.content.items():
        listed = columns[0] if len(columns) == 1 else columns
        lines.append(f"      {kind}: {json.dumps(listed, ensure_ascii=False)}")
    if not source.content:
        lines.append("      text: TODO")
    return "\n".join(lines) + "\n"
