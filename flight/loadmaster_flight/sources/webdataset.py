"""WebDataset shards: plain tar files whose members are grouped into samples by name."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from .blocks import Block, ContentError, EndOfShardError, Projection
from .files import ShardFile
from .tar_block import TarBlock, TarSample
from .tar_members import MemberKind, TarMember, Window, read_member


class TarShard:
    """Blocks of one archive: block k holds the samples whose first header lies in its range of block_bytes.

    Where the samples of a block start is found by reading in order and remembered; a jump ahead walks over the headers
    in between without their content. A sample's members must follow each other. Members without an extension and
    folders are no samples. Thread-safe.
    """

    def __init__(self, file: ShardFile, block_bytes: int, projection: Projection) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._projection = projection
        self._lock = threading.Lock()
        self._starts = {0: 0}
        self._num_blocks: int | None = None

    def num_blocks(self) -> int | None:
        """Known once the end was read."""
        return self._num_blocks

    def read(self, block: int) -> Block:
        with self._lock:
            known = max(index for index in self._starts if index <= block)
            for index in range(known, block):
                self._check_inside(index)
                self._walk(index, is_loading=False)
            self._check_inside(block)
            run = self._walk(block, is_loading=True)
        return TarBlock(run.samples, fault=run.fault, projection=self._projection)

    def _check_inside(self, block: int) -> None:
        if self._num_blocks is not None and block >= self._num_blocks:
            raise EndOfShardError

    def _walk(self, block: int, *, is_loading: bool) -> _Run:
        run = self._read_run(block, is_loading=is_loading)
        if run.fault is not None and self._read_run(block, is_loading=is_loading) != run:
            raise OSError(f"block {block} differs between two reads: {run.fault}")
        if run.is_end:
            self._num_blocks = block + 1
        else:
            self._starts[block + 1] = run.next_offset
        return run

    def _read_run(self, block: int, *, is_loading: bool) -> _Run:
        stop = (block + 1) * self._block_bytes
        with self._file.open() as handle:
            window = Window(handle, self._file.size_bytes)
            walk = _Walk(window, self._projection, is_loading=is_loading)
            return walk.run(self._starts[block], stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Samples of a block, and where the first sample behind them starts."""

    samples: list[TarSample]
    next_offset: int
    is_end: bool = False
    fault: str | None = None


class _Walk:
    """One pass over the members of a block."""

    def __init__(self, window: Window, projection: Projection, *, is_loading: bool) -> None:
        self._window = window
        self._paths = projection.paths
        self._is_loading = is_loading
        self._samples: list[TarSample] = []

    def run(self, offset: int, stop: int) -> _Run:
        """Read samples from `offset` until one starts at or behind `stop`."""
        if offset >= stop:
            return _Run(samples=[], next_offset=offset)
        try:
            while True:
                member = read_member(self._window, offset)
                if member is None:
                    return _Run(samples=self._samples, next_offset=offset, is_end=True)
                if not self._accept(member, stop):
                    return _Run(samples=self._samples, next_offset=member.offset)
                offset = member.next_offset
        except ContentError as error:
            return _Run(samples=self._samples, next_offset=offset, is_end=True, fault=str(error))

    def _accept(self, member: TarMember, stop: int) -> bool:
        """Take a member into its sample; False if it starts a sample of a later block."""
        key, extension = split_name(member.name)
        if member.kind is MemberKind.FOLDER or not extension:
            self._check_whole(member)
            return True
        if not self._samples or self._samples[-1].key != key:
            if member.offset >= stop:
                return False
            self._check_whole(member)
            self._samples.append(TarSample(key=key))
        elif member.data_offset + member.size_bytes > self._window.size_bytes:
            self._samples.pop()
        self._check_whole(member)
        self._add(self._samples[-1], extension, member)
        return True

    def _check_whole(self, member: TarMember) -> None:
        if member.data_offset + member.size_bytes > self._window.size_bytes:
            raise ContentError(f"cut archive: it ends inside member {member.name}")

    def _add(self, sample: TarSample, extension: str, member: TarMember) -> None:
        if extension in sample.members:
            sample.fault = f"member {member.name} is there twice"
        elif member.kind is not MemberKind.FILE:
            sample.fault = f"member {member.name} is a {member.kind}: links and devices are not followed"
        sample.members.setdefault(extension, None)
        if sample.fault is None and self._is_loading and self._is_wanted(extension):
            sample.members[extension] = self._window.read(member.data_offset, member.size_bytes)

    def _is_wanted(self, extension: str) -> bool:
        return self._paths is None or any(path == extension or path.startswith(extension + ".") for path in self._paths)


def split_name(name: str) -> tuple[str, str]:
    """A member's key and extension: the path up to the first dot of its last part, and what follows that dot.

    The extension is empty for a name without a dot or with a leading one: such a member belongs to no sample.
    """
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return (folder + slash + stem, extension) if stem else (name, "")
