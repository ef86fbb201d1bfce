"""A try before a run starts: a small source must yield a sample, whatever is wrong with some of its rows.

# N = rows
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import numpy as np

from ..sources.blocks import Block, RowFault
from ..sources.files import source_error
from ..sources.inventory import SMALL_SOURCE_BYTES
from ..sources.media_files import MediaFiles
from ..sources.reader import SourceReader
from ..spec import SourceManifest, SourceSpec
from ..wire.errors import SourceError, UnavailableError
from ..wire.schemas import Verdict
from .media import NO_ACCESS, MediaAccess
from .transform import Transform

_ROWS_AT_ONCE = 64
_NAMED_REASONS = 3
_NAMED_COLUMNS = 20


def refuse_fruitless(manifest: SourceManifest, spec: SourceSpec, transform: Transform) -> None:
    """Check that a source of at most SMALL_SOURCE_BYTES has a row that would be served; larger ones are not read.

    A wrong column, a file of another format or a filter that lets nothing pass would else be met at the first step.
    Reads and transforms up to the first such row: nearly always a few rows of the first block.

    Raises:
        SourceError: Every row is skipped or bad; names source, field, file, reasons, and the columns that there are.
    """
    if sum(shard.size_bytes for shard in manifest.shards) > SMALL_SOURCE_BYTES:
        return
    reasons: Counter[str] = Counter()
    columns: list[str] = []
    try:
        with SourceReader(manifest, spec) as reader, closing(MediaFiles(manifest, spec)) as files:
            for shard in range(len(manifest.shards)):
                access = NO_ACCESS if transform.media is None else transform.media.access(files, shard)
                for block in reader.blocks(shard):
                    columns = columns or _columns(block)
                    if _has_sample(block, transform, access, reasons):
                        return
    except UnavailableError as error:
        raise SourceError(error.message, source=manifest.name, field=f"sources.{manifest.name}.uri") from error
    raise source_error(manifest.name, manifest.shards[0].uri, _rule(reasons, columns, manifest.name))


def _has_sample(block: Block, transform: Transform, access: MediaAccess, reasons: Counter[str]) -> bool:
    for start in range(0, block.num_rows, _ROWS_AT_ONCE):
        rows_N = np.arange(start, min(start + _ROWS_AT_ONCE, block.num_rows))
        measured = transform.measure(block, rows_N, access)
        if (measured.verdict == Verdict.OK).any():
            return True
        reasons.update(str(reason) for reason in measured.reason)
    return False


def _columns(block: Block) -> list[str]:
    row = block.row(0) if block.num_rows else {}
    return [] if isinstance(row, RowFault) else [str(name) for name in row]


def _rule(reasons: Counter[str], columns: list[str], source: str) -> str:
    told = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(_NAMED_REASONS))
    there = f" (columns of the first row: {', '.join(columns[:_NAMED_COLUMNS])})" if columns else ""
    return (
        f"must hold a sample, but none of {reasons.total()} rows can be served: {told}; "
        f"repair the files, or check sources.{source}.transform{there}"
    )
