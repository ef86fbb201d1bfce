"""How often reading is tried: I/O errors with growing waits, content twice on the same bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from ..wire.errors import UnavailableError
from ..wire.jitter import jittered
from .blocks import ContentError
from .files import ObservedFile, ShardFile

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long I/O errors are borne: `tries` attempts, waits doubling from `first_wait_s` up to `longest_wait_s`."""

    tries: int = 6
    first_wait_s: float = 0.1
    longest_wait_s: float = 5.0

    def call(
        self,
        read: Callable[[], T],
        *,
        place: str,
        stopped: threading.Event,
        on_retry: Callable[[BaseException], None] = lambda _: None,
    ) -> T:
        """Run `read`, again after an OSError, of which `on_retry` is told.

        Raises:
            UnavailableError: It failed `tries` times, or `stopped` was set meanwhile; names `place`.
        """
        for attempt in range(1, self.tries + 1):
            try:
                return read()
            except (OSError, MemoryError) as error:
                if attempt < self.tries:
                    on_retry(error)
                wait_s = jittered(min(self.longest_wait_s, self.first_wait_s * 2 ** (attempt - 1)))
                if attempt == self.tries or stopped.wait(wait_s):
                    message = f"{place} cannot be read after {attempt} tries: {type(error).__name__}: {error}"
                    raise UnavailableError(message) from error
        raise AssertionError("tries must be at least 1")


def decode_twice(file: ShardFile, decode: Callable[[Any], T]) -> T:
    """Decode a shard's bytes; where that fails, once more while watching whether the bytes arrive.

    Raises:
        ContentError: The bytes arrived both times and did not decode.
        OSError: The bytes did not arrive.
    """
    with file.open() as handle:
        try:
            return decode(handle)
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            pass
    with file.open() as handle, ObservedFile(handle) as observed:
        try:
            return decode(pa.PythonFile(observed, mode="r"))
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if observed.io_error is not None:
                raise observed.io_error from error
            raise ContentError(" ".join(str(error).split())[:300]) from error
