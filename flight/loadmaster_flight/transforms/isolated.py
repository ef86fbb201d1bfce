"""Opening media in a process of their own, where a decoder's crash ends nothing else.

# K = units wanted
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import numpy as np

from ..sources.blocks import ContentError
from ..spec.media import MediaSpec
from ..wire.errors import UnavailableError
from ..wire.media import Grid
from ..wire.schemas import MediaKind
from .codec import LeftOutError
from .media_child import packed, unpacked
from .sample import Int64Array, UInt8Array

CHILD = (sys.executable, "-m", "loadmaster_flight.transforms.media_child")
"""The command that opens one item."""
TIMEOUT_S = 120.0
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}


class DecoderCrashedError(ContentError):
    """The other process died of a signal that a broken decoder ends by."""


class DecoderFailedError(Exception):
    """What a decoder raised in the other process; the message is its class and text."""


class IsolatedCodec:
    """A `Codec` that starts a process for each call: some tenths of a second, so for suspects alone."""

    def __init__(self, spec: MediaSpec) -> None:
        self._spec = spec.model_dump(mode="json")

    def probe(self, kind: MediaKind, data: bytes) -> Grid:
        """See `Codec`."""
        head, _ = self._ask(data, call="probe", kind=kind)
        t, h, w = head["grid"]
        return t, h, w

    def fill_pixels(self, kind: MediaKind, data: bytes, grid: Grid, units_K: Int64Array, out: UInt8Array) -> None:
        """See `Codec`."""
        _, body = self._ask(data, call="pixels", kind=kind, grid=grid, units=units_K.tolist(), size_bytes=len(out))
        out[:] = np.frombuffer(body, np.uint8)

    def fill_audio(self, data: bytes, grid: Grid, out: UInt8Array) -> None:
        """See `Codec`."""
        _, body = self._ask(data, call="audio", kind=MediaKind.AUDIO, grid=grid, size_bytes=len(out))
        out[:] = np.frombuffer(body, np.uint8)

    def _ask(self, data: bytes, *, size_bytes: int = 0, **question: Any) -> tuple[dict[str, Any], memoryview]:
        """Ask a new process.

        Raises:
            ContentError: It says so.
            DecoderCrashedError: It crashed.
            LeftOutError: It says so.
            DecoderFailedError: The decoder raised something else.
            UnavailableError: It was ended from outside, or did not end; nothing is said about the item.
            MemoryError: It had no memory.
        """
        message = packed({"spec": self._spec, "size_bytes": size_bytes} | question, data)
        try:
            ended = subprocess.run(CHILD, input=message, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"a decoder did not end within {TIMEOUT_S:g} s") from error
        if ended.returncode:
            raise _ending(ended.returncode, ended.stderr)
        head, body = unpacked(ended.stdout)
        _raise_told(head)
        return head, body


def _ending(code: int, stderr: bytes) -> Exception:
    if -code in _CRASHES:
        return DecoderCrashedError(f"the decoder crashed on it ({signal.Signals(-code).name})")
    told = stderr.decode(errors="replace").strip().splitlines()[-1:]
    return UnavailableError(f"the process of a decoder ended with code {code}: {' '.join(told)}")


def _raise_told(head: dict[str, Any]) -> None:
    if "content" in head:
        raise ContentError(head["content"])
    if "left_out" in head:
        raise LeftOutError(head["left_out"])
    if "memory" in head:
        raise MemoryError("the process of a decoder had no memory")
    if "error" in head:
        raise DecoderFailedError(head["error"])
