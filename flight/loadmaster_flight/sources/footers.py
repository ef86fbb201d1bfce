"""What the end of a Parquet or Arrow file tells without reading the rows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from ..spec.source import SourceFormat
from .arrow_ipc import FILE_MAGIC
from .attempts import decode_twice
from .blocks import ContentError, Projection, heads
from .files import ShardFile, source_error
from .parquet import read_footer

Progress = Callable[[int, int], None]
_THREADS = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What a file's end tells.

    Attributes:
        num_rows: None where it does not tell.
        block_sizes: Bytes of each block.
        read_sizes: Bytes of each block's columns that are read, decompressed; as near as the footer tells.
    """

    num_rows: int | None
    block_sizes: tuple[int, ...]
    read_sizes: tuple[int, ...]
    schema: pa.Schema


def footer_of(file: ShardFile, kind: SourceFormat, projection: Projection) -> Footer:
    """Read the footer of a Parquet file or of an Arrow file.

    Args:
        projection: The columns that are read.

    Raises:
        SourceError: There is none that can be read, or the file does not arrive; names source and file.
    """
    try:
        return _parquet_footer(file, projection) if kind is SourceFormat.PARQUET else decode_twice(file, _arrow_footer)
    except ContentError as error:
        rule = f"must end with a {kind} footer, it is cut or another format ({error}); write or copy it again"
        raise source_error(file.source, file.uri, rule) from error
    except OSError as error:
        raise source_error(file.source, file.uri, f"cannot be read: {error}") from error


def is_arrow_file(file: ShardFile) -> bool:
    """Whether an Arrow shard has the file format (with a footer) rather than the stream format."""
    try:
        return file.read_at(0, len(FILE_MAGIC)) == FILE_MAGIC
    except OSError as error:
        raise source_error(file.source, file.uri, f"cannot be read: {error}") from error


def for_each(files: list[ShardFile], read: Callable[[ShardFile], T], progress: Progress | None) -> list[T]:
    """`read` of every file, a few at a time, in order; stops at the first error."""
    with ThreadPoolExecutor(_THREADS) as pool:
        results: list[T] = []
        try:
            for result in pool.map(read, files):
                results.append(result)
                if progress is not None:
                    progress(len(results), len(files))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return results


def _parquet_footer(file: ShardFile, projection: Projection) -> Footer:
    footer = read_footer(file)
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    return Footer(
        num_rows=int(footer.num_rows),
        block_sizes=tuple(int(group.total_byte_size) for group in groups),
        read_sizes=tuple(_read_size(group, projection) for group in groups),
        schema=footer.schema.to_arrow_schema(),
    )


def _read_size(group: Any, projection: Projection) -> int:
    if projection.paths is None:
        return int(group.total_byte_size)
    columns = (group.column(index) for index in range(group.num_columns))
    return sum(int(each.total_uncompressed_size) for each in columns if _is_read(each.path_in_schema, projection))


def _is_read(column: str, projection: Projection) -> bool:
    """Whether a leaf column lies at or below a path that is read."""
    above = {head for head, _ in heads(column)}
    return any(path in above for path in projection.paths or ())


def _arrow_footer(handle: Any) -> Footer:
    """Arrow's footer tells neither rows nor bytes of a batch: the batches share the file's bytes evenly."""
    reader = pa.ipc.open_file(handle)
    num_batches = int(reader.num_record_batches)
    even, more = divmod(int(handle.size()), max(1, num_batches))
    sizes = tuple(even + (index < more) for index in range(num_batches))
    return Footer(num_rows=None, block_sizes=sizes, read_sizes=sizes, schema=reader.schema)
