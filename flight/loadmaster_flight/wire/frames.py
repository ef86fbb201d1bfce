"""The fixed header that rides as app_metadata on every message of a rank's stream."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag

from .errors import BadRequestError

MAGIC = b"LM"
VERSION = 1
_STRUCT = struct.Struct("<2sBBIQQI")  # magic, version, flags, generation, step, build_us, text length


class FrameFlag(IntFlag):
    """LAST: last message of its step. HEARTBEAT: nothing yet, still alive. END: the window or the stream is over."""

    NONE = 0
    LAST = 1
    HEARTBEAT = 2
    WINDOW_END = 4
    STREAM_END = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Header of one message. `text` says in a heartbeat what is being waited for."""

    flags: FrameFlag
    generation: int
    step: int
    build_us: int = 0
    text: str = ""

    def pack(self) -> bytes:
        text = self.text.encode()[:1000]
        head = _STRUCT.pack(MAGIC, VERSION, self.flags, self.generation, self.step, self.build_us, len(text))
        return head + text

    @staticmethod
    def unpack(data: bytes) -> Frame:
        """Raises BadRequestError for anything that is not a frame of this version."""
        if len(data) < _STRUCT.size:
            raise BadRequestError(f"a frame must have at least {_STRUCT.size} bytes, got {len(data)}")
        magic, version, flags, generation, step, build_us, length = _STRUCT.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            raise BadRequestError(f"frame magic and version must be {MAGIC!r} {VERSION}, got {magic!r} {version}")
        text = data[_STRUCT.size : _STRUCT.size + length].decode(errors="replace")
        return Frame(flags=FrameFlag(flags), generation=generation, step=step, build_us=build_us, text=text)
