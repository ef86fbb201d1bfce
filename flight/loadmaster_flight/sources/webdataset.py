"""WebDataset shards: plain tar files whose members are grouped into samples by name."""

from __future__ import annotations

import threading
from collections.abc import Container
from dataclasses import dataclass

from .blocks import Block, ContentError, EndOfShardError, Projection
from .files import ShardFile
from .grouping import Grouping, split_at_first_dot
from .seen import SeenKeys
from .tar_block import TarBlock, TarSample, is_wanted
from .tar_members import MemberKind, TarMember, Window, read_member

_STRANGERS, _STRANGERS_AT_FIRST = 64, 8
"""Members behind a block's range, none of them its own, after which the rest of its samples is not looked for any more:
where members of several samples were seen to take turns, and where samples merely may be incomplete."""


class TarShard:
    """Blocks of one archive: block k holds the samples whose first header lies in its range of block_bytes.

    Where the samples of a block start is found by reading in order and remembered; a jump ahead walks over the headers
    in between without their content. Members of a sample that are no neighbours are joined within a block; where they
    lie in two blocks, those of the later one are a fault. Folders and members that the grouping gives no field are no
    samples. Thread-safe.

    Args:
        grouping: Key and field of a member by its name.
        excluded: Keys of samples that are left out.
    """

    def __init__(
        self,
        file: ShardFile,
        block_bytes: int,
        projection: Projection,
        *,
        grouping: Grouping = split_at_first_dot,
        excluded: Container[str] = (),
    ) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._projection = projection
        self._grouping = grouping
        self._excluded = excluded
        self._lock = threading.Lock()
        self._starts = {0: _Start(offset=0)}
        self._seen = SeenKeys()
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
        samples = [sample for sample in run.samples if sample.key not in self._excluded]
        return TarBlock(samples, fault=run.fault, projection=self._projection)

    def _check_inside(self, block: int) -> None:
        if self._num_blocks is not None and block >= self._num_blocks:
            raise EndOfShardError

    def _walk(self, block: int, *, is_loading: bool) -> _Run:
        run = self._read_run(block, is_loading=is_loading)
        if run.fault is not None and self._read_run(block, is_loading=is_loading) != run:
            raise OSError(f"block {block} differs between two reads: {run.fault}")
        self._refuse_apart(run.samples, block)
        if run.is_end:
            self._num_blocks = block + 1
        else:
            is_interleaved = run.is_interleaved or self._starts[block].is_interleaved
            self._starts[block + 1] = _Start(offset=run.next_offset, joined=run.joined, is_interleaved=is_interleaved)
        return run

    def _refuse_apart(self, samples: list[TarSample], block: int) -> None:
        """Members behind the end of their sample's block stand for no sample of their own."""
        blocks = self._seen.first_blocks([sample.key for sample in samples], block)
        for sample, first in zip(samples, blocks, strict=True):
            if first < block:
                where = f"member of sample {sample.key} lies blocks behind the others (block {first})"
                sample.fault = f"{where}: raise block_bytes or pack anew"

    def _read_run(self, block: int, *, is_loading: bool) -> _Run:
        start, stop = self._starts[block], (block + 1) * self._block_bytes
        with self._file.open() as handle:
            window = Window(handle, self._file.size_bytes)
            walk = _Walk(window, self._projection, self._grouping, start, is_loading=is_loading)
            return walk.run(stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """Where the members of a block start.

    Attributes:
        joined: Offsets of members behind it that blocks before have taken.
        is_interleaved: Members of several samples were seen to take turns.
    """

    offset: int
    joined: frozenset[int] = frozenset()
    is_interleaved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Samples of a block, where the first sample behind them starts, and members behind that which it has taken."""

    samples: list[TarSample]
    next_offset: int
    joined: frozenset[int] = frozenset()
    is_interleaved: bool = False
    is_end: bool = False
    fault: str | None = None


class _Walk:
    """One pass over the members of a block."""

    def __init__(
        self,
        window: Window,
        projection: Projection,
        grouping: Grouping,
        start: _Start,
        *,
        is_loading: bool,
    ) -> None:
        self._window = window
        self._paths = projection.paths
        self._grouping = grouping
        self._start = start
        self._is_loading = is_loading
        self._samples: dict[str, TarSample] = {}
        self._last: TarSample | None = None
        self._is_interleaved = start.is_interleaved

    def run(self, stop: int) -> _Run:
        """Read samples from the start until a new one starts at or behind `stop`."""
        offset = self._start.offset
        if offset >= stop:
            return _Run(samples=[], next_offset=offset, joined=self._start.joined)
        try:
            while True:
                member = read_member(self._window, offset)
                if member is None:
                    return _Run(samples=self._taken(), next_offset=offset, is_end=True)
                if not self._accept(member, stop):
                    return self._end_before(member)
                offset = member.next_offset
        except ContentError as error:
            return _Run(samples=self._taken(), next_offset=offset, is_end=True, fault=str(error))

    def _end_before(self, member: TarMember) -> _Run:
        joined = self._look_ahead(member) if self._may_lack_members() else set[int]()
        joined |= {offset for offset in self._start.joined if offset >= member.offset}
        return _Run(
            samples=self._taken(),
            next_offset=member.offset,
            joined=frozenset(joined),
            is_interleaved=self._is_interleaved,
        )

    def _may_lack_members(self) -> bool:
        """Not where members were neighbours so far, several a sample, and the last sample has as many as any."""
        most = max((len(sample.members) for sample in self._samples.values()), default=0)
        last = len(self._last.members) if self._last is not None else 0
        return self._is_interleaved or most == 1 or last < most

    def _taken(self) -> list[TarSample]:
        return list(self._samples.values())

    def _accept(self, member: TarMember, stop: int) -> bool:
        """Take a member into its sample; False if it starts a sample of a later block."""
        key, extension = self._grouping(member.name)
        if member.kind is MemberKind.FOLDER or not extension or member.offset in self._start.joined:
            self._check_whole(member)
            return True
        sample = self._samples.get(key)
        if sample is None:
            if member.offset >= stop:
                return False
            self._check_whole(member)
            sample = self._samples[key] = TarSample(key=key)
        elif not self._is_whole(member):
            del self._samples[key]
        self._check_whole(member)
        self._is_interleaved |= self._last is not None and self._last is not sample and bool(sample.members)
        self._last = sample
        self._add(sample, extension, member)
        return True

    def _look_ahead(self, member: TarMember | None) -> set[int]:
        """Take what belongs to samples of this block from the members right behind it."""
        joined: set[int] = set()
        strangers = 0
        while member is not None and self._is_whole(member):
            key, extension = self._grouping(member.name)
            is_new = member.offset not in self._start.joined and member.kind is not MemberKind.FOLDER
            if is_new and extension and key in self._samples:
                self._is_interleaved = True
                self._add(self._samples[key], extension, member)
                joined.add(member.offset)
            strangers = 0 if member.offset in joined else strangers + 1
            if strangers >= (_STRANGERS if self._is_interleaved else _STRANGERS_AT_FIRST):
                break
            try:
                member = read_member(self._window, member.next_offset)
            except ContentError:  # of the block behind this one, which will say so
                break
        return joined

    def _is_whole(self, member: TarMember) -> bool:
        return member.data_offset + member.size_bytes <= self._window.size_bytes

    def _check_whole(self, member: TarMember) -> None:
        if not self._is_whole(member):
            raise ContentError(f"cut archive: it ends inside member {member.name}")

    def _add(self, sample: TarSample, extension: str, member: TarMember) -> None:
        if extension in sample.members:
            sample.fault = f"member {member.name} is there twice"
        elif member.kind is not MemberKind.FILE:
            sample.fault = f"member {member.name} is a {member.kind}: links and devices are not followed"
        sample.members.setdefault(extension, None)
        if sample.fault is None and self._is_loading and is_wanted(extension, self._paths):
            sample.members[extension] = self._window.read(member.data_offset, member.size_bytes)
