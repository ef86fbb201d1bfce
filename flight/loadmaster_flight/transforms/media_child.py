"""A process that opens one media item and ends: for items on which a decoder may crash.

Asked and answered over pipes in plain JSON and bytes, never with pickled objects:
standard input is `length u64 | JSON question | the item's bytes`, standard output `length u64 | JSON answer | result`.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
from typing import Any

import numpy as np

from ..sources.blocks import ContentError
from ..spec.media import MediaSpec
from ..wire.schemas import MediaKind
from .codec import LeftOutError, MediaCodec
from .function import describe

_LENGTH = struct.Struct("<Q")


def packed(head: dict[str, Any], body: bytes | memoryview) -> bytes:
    """A question or an answer as bytes."""
    text = json.dumps(head).encode()
    return b"".join((_LENGTH.pack(len(text)), text, body))


def unpacked(message: bytes) -> tuple[dict[str, Any], memoryview]:
    """Inverse of `packed`.

    Raises:
        ValueError: It is cut.
    """
    if len(message) < _LENGTH.size:
        raise ValueError(f"a message must have at least {_LENGTH.size} bytes, got {len(message)}")
    start = _LENGTH.size + _LENGTH.unpack_from(message)[0]
    if start > len(message):
        raise ValueError(f"a message must have {start} bytes or more, got {len(message)}")
    head: dict[str, Any] = json.loads(message[_LENGTH.size : start])
    return head, memoryview(message)[start:]


def main() -> None:
    """Answer the one question on standard input."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get into the answer
    head, body = unpacked(sys.stdin.buffer.read())
    with answers:
        answers.write(packed(*_answer(head, bytes(body))))


def _answer(question: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes | memoryview]:
    codec = MediaCodec(MediaSpec.model_validate(question["spec"]))
    kind, out = MediaKind(question["kind"]), np.zeros(question["size_bytes"], np.uint8)
    try:
        if question["call"] == "probe":
            return {"grid": codec.probe(kind, data)}, b""
        t, h, w = question["grid"]
        if question["call"] == "audio":
            codec.fill_audio(data, (t, h, w), out)
        else:
            codec.fill_pixels(kind, data, (t, h, w), np.array(question["units"], np.int64), out)
        return {}, out.data
    except ContentError as error:
        return {"content": str(error)}, b""
    except LeftOutError as error:
        return {"left_out": str(error)}, b""
    except MemoryError:
        return {"memory": True}, b""
    except Exception as error:  # told to whoever asked, who judges it as if it had been raised there
        return {"error": describe(error)}, b""


if __name__ == "__main__":
    main()
