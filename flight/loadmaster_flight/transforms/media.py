"""Images, video and audio of a source's rows: where their bytes are, what they measure, and decoding them.

# N = rows, K = units of a row
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..sources.blocks import Block, ContentError, Int64Array, RowFault
from ..sources.media_files import MediaFiles
from ..spec.media import MediaSpec
from ..spec.source import TransformSpec
from ..wire.media import Grid, MediaItem, patches_of, unit_grids
from ..wire.schemas import MediaKind
from .codec import Codec, LeftOutError, MediaCodec
from .function import judged
from .insets import Inset
from .limits import MediaLimits
from .placeholders import Slot
from .sample import Int32Array, MediaBuffers, Outcome, SampleMedia, UInt8Array, bad, skipped

if TYPE_CHECKING:
    from .thumbnail import Picture


class Phase(StrEnum):
    """What is done with an item."""

    PROBE = "probe"
    DECODE = "decode"


Read = Callable[[object], bytes | RowFault]
"""The bytes of a value of a media column; raises OSError or UnavailableError where storage fails."""
Watch = Callable[[int, Phase, Codec], AbstractContextManager[Codec]]
"""(row, phase, codec) -> the codec to use for the row's items, watched meanwhile."""


def inline_bytes(value: object) -> bytes | RowFault:
    """The bytes of a value that holds them itself."""
    inner = value.get("bytes") if isinstance(value, Mapping) else value
    if isinstance(inner, (bytes, bytearray, memoryview)):
        return bytes(inner)
    return RowFault(reason="media that is a path needs the source's files to be read")


def _unwatched(row: int, phase: Phase, codec: Codec) -> AbstractContextManager[Codec]:
    return nullcontext(codec)


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaAccess:
    """How the media of one block's rows are reached.

    Attributes:
        read: Finds the bytes of a value; by default only those that the row holds itself.
        watch: Notes what is opened, and may have it opened elsewhere.
    """

    read: Read = inline_bytes
    watch: Watch = _unwatched


NO_ACCESS = MediaAccess()


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaColumns:
    """The columns of each kind that has any."""

    paths: Mapping[MediaKind, tuple[str, ...]]

    @staticmethod
    def of_spec(spec: TransformSpec) -> MediaColumns:
        named = {MediaKind.IMAGE: spec.image, MediaKind.VIDEO: spec.video, MediaKind.AUDIO: spec.audio}
        return MediaColumns(paths={kind: paths for kind, paths in named.items() if paths})

    def read(self, block: Block, rows_N: Int64Array) -> list[dict[MediaKind, list[object]] | Outcome]:
        """The values of each row by kind, lists laid out and nulls left out, or BAD where one cannot be read."""
        found: list[dict[MediaKind, list[object]] | Outcome] = [{kind: [] for kind in self.paths} for _ in rows_N]
        for kind, path in ((kind, path) for kind, paths in self.paths.items() for path in paths):
            for i, value in enumerate(block.column(path, rows_N)):
                row = found[i]
                if isinstance(value, RowFault):
                    found[i] = bad(value.reason)
                elif isinstance(row, dict):
                    row[kind] += _flat(value)
        return found


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif not _is_null(value):
        yield value


def _is_null(value: object) -> bool:
    """A null, or a struct that names neither bytes nor a path."""
    return value is None or (isinstance(value, Mapping) and all(item is None for item in value.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaTokens:
    """Ids of one kind's tokens: the placeholder, and what stands around an item; None where there is none."""

    placeholder: int
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRule:
    """What a source makes of media. Any thread may call it.

    Attributes:
        tokens: Of the kinds that its rows may have.
    """

    spec: MediaSpec
    tokens: Mapping[MediaKind, MediaTokens]
    codec: Codec

    def access(self, files: MediaFiles, shard: int, watch: Watch = _unwatched) -> MediaAccess:
        """Access to the media of a shard's rows, in the rows themselves or in files that they name."""
        return MediaAccess(read=partial(files.read, shard, max_bytes=self.spec.max_bytes), watch=watch)

    @staticmethod
    def of_spec(spec: MediaSpec, tokens: Mapping[MediaKind, MediaTokens]) -> MediaRule:
        return MediaRule(spec=spec, tokens=tokens, codec=MediaCodec(spec))

    def measure(self, items: Sequence[Slot], row: int, access: MediaAccess) -> list[Grid] | Outcome:
        """Grids of a row's items from their headers, or why the row cannot be used.

        Raises:
            OSError, UnavailableError: Storage failed, which says nothing about the row.
        """
        grids: list[Grid] = []
        unknown = next((slot.kind.name.lower() for slot in items if slot.kind not in self.tokens), None)
        if unknown is not None:
            return bad(f"media of the run names no token for {unknown}")
        for index, slot in enumerate(items):
            found = self._probed(slot, row, access)
            if isinstance(found, Outcome):
                where = f"{slot.kind.name.lower()} {index + 1} of {len(items)}: " if len(items) > 1 else ""
                return replace(found, reason=f"{where}{found.reason}")
            grids.append(found)
        return grids

    def insets(self, items: Sequence[Slot], grids: Sequence[Grid], places: Sequence[int]) -> list[Inset]:
        """The tokens of each item and where they stand among those of the text."""
        return [self._inset(slot.kind, grid, place) for slot, grid, place in zip(items, grids, places, strict=True)]

    def sample(self, items: Sequence[Slot], grids: Sequence[Grid], starts: Sequence[int]) -> SampleMedia:
        """What is kept of a row's items."""
        of = zip(items, grids, starts, strict=True)
        media = tuple(MediaItem(kind=slot.kind, grid=grid, token_start=start) for slot, grid, start in of)
        patches = tuple(count for item in media for count in self.unit_patches(item))
        pixel_bytes = sum(patches) * self.patch_bytes
        return SampleMedia(items=media, patches=patches, size_bytes=pixel_bytes + self.audio_bytes(media))

    def num_tokens(self, kind: MediaKind, grid: Grid) -> int:
        """Placeholder tokens of an item."""
        if kind is MediaKind.AUDIO:
            assert self.spec.audio is not None, "checked when the run was read"
            return self.spec.audio.num_tokens(grid[0])
        assert self.spec.vision is not None, "checked when the run was read"
        return self.spec.vision.num_tokens(grid)

    def unit_patches(self, item: MediaItem) -> list[int]:
        """Patches of each unit of an item."""
        if item.kind is MediaKind.AUDIO:
            return []
        vision = self.spec.vision
        assert vision is not None, "checked when the run was read"
        grids = unit_grids(item.kind, item.grid, merge=vision.grid_merge, max_patches=vision.unit_cap)
        return [int(patches) for patches in patches_of(grids)]

    @property
    def patch_bytes(self) -> int:
        """Bytes of one patch."""
        vision = self.spec.vision
        return 0 if vision is None else vision.patch_dim * vision.item_bytes

    def audio_bytes(self, items: Sequence[MediaItem]) -> int:
        """Bytes of the audio frames of some items."""
        hop = 0 if self.spec.audio is None else self.spec.audio.hop
        return sum(2 * hop * item.grid[0] for item in items if item.kind is MediaKind.AUDIO)

    def fill(
        self, slots: Sequence[Slot], media: SampleMedia, out: MediaBuffers, row: int, access: MediaAccess
    ) -> Outcome | None:
        """Decode what is wanted of a row's media.

        Args:
            slots: Where the bytes of the row's items are, in the order of the document.
            media: As measured.
            out: Where it goes; where this fails its content means nothing.

        Returns:
            None, or BAD with what is wrong with the content.
        """
        first_unit = at = audio_at = 0
        for slot, item in zip(slots, media.items, strict=True):
            patches = np.array(self.unit_patches(item), np.int64)
            is_mine_K = (out.units_K >= first_unit) & (out.units_K < first_unit + len(patches))
            wanted_K = out.units_K[is_mine_K] - first_unit
            first_unit += len(patches)
            num_bytes = int(patches[wanted_K].sum()) * self.patch_bytes
            heard = self.audio_bytes([item]) if len(out.audio) else 0
            if num_bytes or heard:
                part = out.audio[audio_at : audio_at + heard] if heard else out.pixels[at : at + num_bytes]
                failure = self._decoded(slot, item, wanted_K, part, row, access)
                if failure is not None:
                    return failure
            at, audio_at = at + num_bytes, audio_at + heard
        return None

    def thumbnails(self, slots: Sequence[Slot], row: int, access: MediaAccess, limit: int) -> list[Picture]:
        """Small pictures of a row's first images, for people; those that cannot be decoded are left out.

        What has to be decoded in a process of its own is left out too: looking at it must not cost one.

        Raises:
            OSError, UnavailableError: Storage failed.
        """
        from .thumbnail import thumbnail  # with its library, which a run of text alone does not need

        found: list[Picture] = []
        limits = MediaLimits(max_bytes=self.spec.max_bytes, max_pixels=self.spec.max_decode_pixels)
        for slot in (slot for slot in slots if slot.kind is MediaKind.IMAGE):
            if len(found) >= limit:
                break
            data = access.read(slot.value)
            if isinstance(data, RowFault):
                continue
            with access.watch(row, Phase.DECODE, self.codec) as codec:
                if codec is self.codec:
                    with suppress(ContentError):
                        found.append(thumbnail(data, limits))
        return found

    def _probed(self, slot: Slot, row: int, access: MediaAccess) -> Grid | Outcome:
        data = access.read(slot.value)
        if isinstance(data, RowFault):
            return bad(data.reason)
        try:
            with access.watch(row, Phase.PROBE, self.codec) as codec:
                return judged(lambda: codec.probe(slot.kind, data), passing=(LeftOutError,))
        except LeftOutError as error:
            return skipped(str(error))

    def _decoded(
        self, slot: Slot, item: MediaItem, units_K: Int64Array, out: UInt8Array, row: int, access: MediaAccess
    ) -> Outcome | None:
        data = access.read(slot.value)
        if isinstance(data, RowFault):
            return bad(data.reason)
        with access.watch(row, Phase.DECODE, self.codec) as codec:
            if item.kind is MediaKind.AUDIO:
                return judged(lambda: codec.fill_audio(data, item.grid, out))
            return judged(lambda: codec.fill_pixels(item.kind, data, item.grid, units_K, out))

    def _inset(self, kind: MediaKind, grid: Grid, place: int) -> Inset:
        own = self.tokens[kind]
        lead: list[int] = [] if own.start is None else [own.start]
        tail: list[int] = [] if own.end is None else [own.end]
        middle = np.full(self.num_tokens(kind, grid), own.placeholder, np.int32)
        ids = np.concatenate([np.array(lead, np.int32), middle, np.array(tail, np.int32)])
        return Inset(place=place, ids=ids, lead=len(lead))

    def has_placeholder(self, ids_n: Int32Array) -> bool:
        """Whether ids of a text hold a placeholder, which no item would stand behind."""
        return bool(np.isin(ids_n, [own.placeholder for own in self.tokens.values()]).any())
