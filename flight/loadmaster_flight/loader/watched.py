"""Opening media under the eyes of the crash record: suspects in a process of their own, until that has opened them.

# K = units wanted
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from typing import TypeVar

from ..spec.run import RunSpec
from ..transforms.codec import Codec
from ..transforms.isolated import DecoderCrashedError, IsolatedCodec
from ..transforms.media import Phase, Watch
from ..transforms.sample import Int64Array, UInt8Array
from ..wire.errors import UnavailableError
from ..wire.media import Grid
from ..wire.schemas import MediaKind
from .crashes import CrashRecord, SampleName

T = TypeVar("T")
NUM_CRASHES = 2
"""So often an item ends a process of its own before that is known of it: it is not opened again."""


class MediaWatch:
    """Chooses where the media of one source are opened. For any number of threads.

    Args:
        crashes: Notes what is open; None: everything is opened here.
    """

    def __init__(self, run: RunSpec, source: str, crashes: CrashRecord | None) -> None:
        self._run, self._source, self._crashes = run.run, source, crashes
        self._trials = Trials(IsolatedCodec(run.media))

    def of_block(self, shard: int, block: int) -> Watch:
        """For `MediaAccess`."""

        def watch(row: int, phase: Phase, codec: Codec) -> AbstractContextManager[Codec]:
            return self._watching(SampleName(self._run, self._source, shard, block, row), phase, codec)

        return watch

    @contextmanager
    def _watching(self, sample: SampleName, phase: Phase, codec: Codec) -> Iterator[Codec]:
        if self._crashes is None:
            yield codec
            return
        crashes, num_deaths = self._crashes, self._crashes.num_deaths(sample)
        if not num_deaths:
            with crashes.noting(sample, phase):
                yield codec
            return
        # Two processes died of it: what it did in a third one, by itself, clears it no more.
        own = codec if num_deaths == 1 else None
        yield _TriedCodec(own, self._trials, lambda: crashes.noting(sample, phase))


class Trials:
    """What became of items in processes of their own, by phase and content. For any number of threads.

    Samples of several items share a name in the record, so it is items that are cleared, and each for its phase.
    """

    def __init__(self, isolated: Codec) -> None:
        self.isolated = isolated
        self._lock = threading.Lock()
        self._cleared: set[tuple[Phase, bytes]] = set()
        self._crashes: dict[tuple[Phase, bytes], list[DecoderCrashedError]] = {}

    def is_cleared(self, key: tuple[Phase, bytes]) -> bool:
        """Whether such a process has opened it, well or with an error that is one of content."""
        return key in self._cleared

    def run(self, key: tuple[Phase, bytes], call: Callable[[], T]) -> T:
        """Open an item by `call`, in a process of its own, unless it is known to crash.

        Raises:
            DecoderCrashedError: It crashes.
            Exception: What `call` raises.
        """
        known = self._crashes.get(key, [])
        if len(known) >= NUM_CRASHES:
            raise DecoderCrashedError(str(known[-1]))
        try:
            result = call()
        except DecoderCrashedError as error:
            with self._lock:
                self._crashes.setdefault(key, []).append(error)
            raise
        except (OSError, MemoryError, UnavailableError):
            raise  # these say nothing about the item
        except Exception:
            self._cleared.add(key)
            raise
        self._cleared.add(key)
        return result


class _TriedCodec:
    """A `Codec` of a suspect: elsewhere, or here what is cleared; `own` is None where nothing is."""

    def __init__(self, own: Codec | None, trials: Trials, noting: Callable[[], AbstractContextManager[None]]) -> None:
        self._own, self._trials, self._noting = own, trials, noting

    def probe(self, kind: MediaKind, data: bytes) -> Grid:
        """See `Codec`."""
        return self._open(Phase.PROBE, data, lambda codec: codec.probe(kind, data))

    def fill_pixels(self, kind: MediaKind, data: bytes, grid: Grid, units_K: Int64Array, out: UInt8Array) -> None:
        """See `Codec`."""
        self._open(Phase.DECODE, data, lambda codec: codec.fill_pixels(kind, data, grid, units_K, out))

    def fill_audio(self, data: bytes, grid: Grid, out: UInt8Array) -> None:
        """See `Codec`."""
        self._open(Phase.DECODE, data, lambda codec: codec.fill_audio(data, grid, out))

    def _open(self, phase: Phase, data: bytes, call: Callable[[Codec], T]) -> T:
        key = (phase, sha256(data).digest())
        if self._own is not None and self._trials.is_cleared(key):
            with self._noting():
                return call(self._own)
        return self._trials.run(key, lambda: call(self._trials.isolated))
