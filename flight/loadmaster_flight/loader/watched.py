"""Opening media under the eyes of the crash record: suspects in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from ..spec.run import RunSpec
from ..transforms.codec import Codec
from ..transforms.isolated import IsolatedCodec
from ..transforms.media import Phase, Watch
from .crashes import CrashRecord, SampleName


class MediaWatch:
    """Chooses where the media of one source are opened. For any number of threads.

    Args:
        crashes: Notes what is open; None: everything is opened here.
    """

    def __init__(self, run: RunSpec, source: str, crashes: CrashRecord | None) -> None:
        self._run, self._source, self._crashes = run.run, source, crashes
        self._isolated = IsolatedCodec(run.media)

    def of_block(self, shard: int, block: int) -> Watch:
        """For `MediaAccess`."""

        def watch(row: int, phase: Phase, codec: Codec) -> AbstractContextManager[Codec]:
            return self._watching(SampleName(self._run, self._source, shard, block, row), phase, codec)

        return watch

    @contextmanager
    def _watching(self, sample: SampleName, phase: Phase, codec: Codec) -> Iterator[Codec]:
        if self._crashes is None:
            yield codec
        elif self._crashes.is_suspect(sample):
            yield self._isolated
        else:
            with self._crashes.noting(sample, phase):
                yield codec
