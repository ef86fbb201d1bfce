"""How loaders read each source, from their heartbeats."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from loadmaster_flight.wire.control import SourceReport

RECENT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWord:
    """What one loader last said of a source. Times are monotonic seconds; `error_s` is None where nothing failed."""

    reads: int
    read_bytes: int
    p50_ms: float
    p99_ms: float
    errors: int
    retries: int
    last_error: str
    error_s: float | None
    is_failing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReads:
    """All loaders of a source together: counts are added up, of times the longest is taken."""

    reads: int
    read_bytes: int
    p50_ms: float | None
    p99_ms: float | None
    errors: int
    retries: int
    last_error: str
    last_error_s: float | None
    is_failing: bool

    @property
    def is_retrying(self) -> bool:
        """Whether something failed lately."""
        return self.last_error_s is not None and self.last_error_s < RECENT_S


class SourceBoard:
    """The newest words of live loaders. Any thread may use it; in memory alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._words: dict[int, dict[tuple[str, int], SourceWord]] = {}

    def note(self, actor: int, reports: Iterable[SourceReport], *, now_s: float | None = None) -> None:
        """Take in what a loader's heartbeat says; sources that it does not name are as they were."""
        now_s = time.monotonic() if now_s is None else now_s
        for report in reports:
            fresh = {(report.run, source): word for source, word in _words(report, now_s)}
            with self._lock:
                self._words.setdefault(actor, {}).update(fresh)

    def keep(self, actors: Iterable[int]) -> None:
        """Forget all other loaders."""
        wanted = set(actors)
        with self._lock:
            for actor in self._words.keys() - wanted:
                del self._words[actor]

    def reads(self, run: str, *, now_s: float | None = None) -> dict[int, SourceReads]:
        """Source -> how it is read, of those that a loader has spoken of."""
        now_s = time.monotonic() if now_s is None else now_s
        found: dict[int, list[SourceWord]] = {}
        with self._lock:
            for words in self._words.values():
                for (of_run, source), word in words.items():
                    if of_run == run:
                        found.setdefault(source, []).append(word)
        return {source: _together(words, now_s) for source, words in found.items()}


def _words(report: SourceReport, now_s: float) -> Iterable[tuple[int, SourceWord]]:
    columns = (
        report.source, report.reads, report.read_bytes, report.p50_ms, report.p99_ms, report.errors, report.retries,
        report.last_error, report.last_error_s, report.is_failing,
    )  # fmt: skip
    for source, reads, read_bytes, p50, p99, errors, retries, last, age_s, is_failing in zip(*columns, strict=False):
        yield (
            source,
            SourceWord(
                reads=reads,
                read_bytes=read_bytes,
                p50_ms=p50,
                p99_ms=p99,
                errors=errors,
                retries=retries,
                last_error=last[:500],
                error_s=now_s - age_s if age_s >= 0 else None,
                is_failing=is_failing,
            ),
        )


def _together(words: list[SourceWord], now_s: float) -> SourceReads:
    failed = [word for word in words if word.error_s is not None]
    newest = max(failed, key=lambda word: word.error_s or 0.0, default=None)
    has_read = [word for word in words if word.reads]
    return SourceReads(
        reads=sum(word.reads for word in words),
        read_bytes=sum(word.read_bytes for word in words),
        p50_ms=max((word.p50_ms for word in has_read), default=None),
        p99_ms=max((word.p99_ms for word in has_read), default=None),
        errors=sum(word.errors for word in words),
        retries=sum(word.retries for word in words),
        last_error=newest.last_error if newest else "",
        last_error_s=now_s - newest.error_s if newest is not None and newest.error_s is not None else None,
        is_failing=any(word.is_failing for word in words),
    )
