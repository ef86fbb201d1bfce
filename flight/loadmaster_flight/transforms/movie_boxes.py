"""What is read from an MP4 or QuickTime file before a demuxer sees it: boxes, tracks and how they are turned."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..sources.blocks import ContentError

_UPRIGHT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One track of a movie.

    Attributes:
        is_video: Whether its handler is one for pictures.
        num_samples: Frames, or pieces of sound, that its table declares.
        orientation: How its display matrix turns it, as an EXIF orientation (1 to 8).
    """

    is_video: bool
    num_samples: int
    orientation: int


def boxes(data: bytes, start: int, stop: int) -> Iterator[tuple[bytes, int, int]]:
    """Name, first byte of the content and end of each box in a range; the last one may end behind it."""
    at = start
    while at + 8 <= stop:
        size, name = struct.unpack_from(">I4s", data, at)
        content = at + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, content)
            content += 8
        elif size == 0:
            size = stop - at
        if size < content - at:
            return  # not a box: what follows is no container any more
        yield name, content, at + size
        at += size


def read_tracks(data: bytes) -> list[Track]:
    """The tracks of a movie, and that its header may be given to a demuxer.

    Raises:
        ContentError: There is no header, as in a file cut before it; or it announces more than the file can hold,
            which would make a demuxer allocate for it.
    """
    try:
        moov = next((box for box in boxes(data, 0, len(data)) if box[0] == b"moov"), None)
        if moov is None:
            raise ContentError("MP4 with no moov")
        if moov[2] > len(data):
            raise ContentError("MP4 cut in its moov")
        return [_track(data, start, stop) for start, stop in _inside(data, (moov[1], moov[2]), b"trak")]
    except struct.error as error:
        raise ContentError("damaged MP4 header") from error


def _inside(data: bytes, span: tuple[int, int], *path: bytes) -> list[tuple[int, int]]:
    """All boxes at a path below a box; compressed headers are refused, their size is anybody's guess."""
    spans = [span]
    for name in path:
        found = [box for start, stop in spans for box in boxes(data, start, stop)]
        if any(box[0] == b"cmov" for box in found):
            raise ContentError("MP4 with a compressed header")
        spans = [(start, stop) for box, start, stop in found if box == name]
    return spans


def _track(data: bytes, start: int, stop: int) -> Track:
    span = (start, stop)
    handlers = [data[at + 8 : at + 12] for at, _ in _inside(data, span, b"mdia", b"hdlr")]
    num_samples = 0
    for at, _ in _inside(data, span, b"mdia", b"minf", b"stbl", b"stsz"):
        (num_samples,) = struct.unpack_from(">I", data, at + 8)
    if num_samples > len(data):
        raise ContentError("MP4 announces more samples than it has bytes")
    headers = _inside(data, span, b"tkhd")
    orientation = _orientation(data, headers[0][0]) if headers else _UPRIGHT
    return Track(is_video=b"vide" in handlers, num_samples=num_samples, orientation=orientation)


def _orientation(data: bytes, at: int) -> int:
    """Of a track header's matrix: (x, y) is shown at (a x + c y, b x + d y)."""
    a, b, _, c, d = struct.unpack_from(">5i", data, at + (52 if data[at] == 1 else 40))
    if abs(b) + abs(c) > abs(a) + abs(d):
        return {(1, -1): 6, (-1, 1): 8, (1, 1): 5, (-1, -1): 7}[_sign(b), _sign(c)]
    return {(1, 1): 1, (-1, 1): 2, (-1, -1): 3, (1, -1): 4}[_sign(a), _sign(d)]


def _sign(value: int) -> int:
    return 1 if value >= 0 else -1
