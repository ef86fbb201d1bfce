"""How the ranks of each stream are, from what constructors say of theirs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from loadmaster_flight.wire.control import RankReport, RankView, StreamProgress
from loadmaster_flight.wire.waiting import SILENT_S, tell_rank, tell_ranks

from ..store import GenerationKey, GenerationRecord, StreamKey

MAX_VIEWS = 64
TEXT_LIFE_S = 0.3
CLOCK_SLACK_S = 1.0
"""Two words of one rank that differ by less are equally new: they took different ways."""
CONFIRM_S = 0.2
"""A word that is newer than a join by this much was not under way already when the rank joined."""
NO_WORD_S = 2.0
GRACE_S = 10.0
"""A rank that closed its stream and joins again may be ahead of the others, as between two evaluation passes: so long
the others may still read what it has read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWord:
    """The newest word of one rank. Times are monotonic seconds of this process.

    Attributes:
        acknowledged: It has consumed the steps before this one.
        told_s: When the constructor said so.
    """

    acknowledged: int
    seen_s: float
    moved_s: float
    told_s: float
    has_left: bool
    is_heard: bool

    def is_newer_than(self, other: RankWord | None) -> bool:
        """Whether to believe this one: a constructor that has yet to hear of the rank knows less."""
        if other is None:
            return True
        if self.is_heard != other.is_heard:
            return self.is_heard
        return self.seen_s >= other.seen_s - CLOCK_SLACK_S


class RankWatch:
    """Remembers, for the newest generation of each stream, when each rank was seen. Any thread may call it.

    In memory alone: after a restart of the planner the next heartbeats of the constructors bring it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._words: dict[StreamKey, tuple[int, dict[int, RankWord]]] = {}
        self._texts: dict[StreamKey, tuple[float, str]] = {}

    def note(self, reports: Iterable[StreamProgress], *, now_s: float | None = None) -> None:
        """Take in what a constructor's heartbeat says."""
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            for report in reports:
                words = self._words_of(StreamKey(run=report.run, stream=report.stream), report.generation)
                if words is None:
                    continue
                for rank, word in _words(report.ranks, now_s):
                    if word.is_newer_than(words.get(rank)):
                        words[rank] = word

    def word(self, key: GenerationKey, rank: int) -> RankWord | None:
        """What is known of a rank; None where no constructor has spoken of it."""
        with self._lock:
            return self._of(key).get(rank)

    def views(self, key: GenerationKey, *, now_s: float | None = None) -> list[RankView]:
        """The ranks that are behind the others or silent, the one most behind first."""
        now_s = time.monotonic() if now_s is None else now_s
        return [_view(rank, word, now_s) for rank, word in self._awaited(key, now_s)][:MAX_VIEWS]

    def text(self, key: GenerationKey, *, now_s: float | None = None) -> str:
        """The same for people: "rank 3, last seen 40 s ago"; empty where nobody is waited for."""
        now_s = time.monotonic() if now_s is None else now_s
        return tell_ranks(
            tell_rank(
                rank,
                step=word.acknowledged,
                seen_s=now_s - word.seen_s,
                moved_s=now_s - word.moved_s,
                has_left=word.has_left,
            )
            for rank, word in self._awaited(key, now_s)
        )

    def recent_text(self, key: GenerationKey) -> str:
        """`text`, at most `TEXT_LIFE_S` old: every heartbeat of every constructor asks for it."""
        now_s = time.monotonic()
        told_s, text = self._texts.get(key.stream_key, (-TEXT_LIFE_S, ""))
        if now_s - told_s >= TEXT_LIFE_S:
            text = self.text(key, now_s=now_s)
            self._texts[key.stream_key] = now_s, text
        return text

    def is_abandoned(
        self, generation: GenerationRecord, rank: int, *, since_s: float, now_s: float | None = None
    ) -> bool:
        """Whether a generation cannot go on because a member, `rank`, joined anew at `since_s`.

        It cannot, as far as the rank has neither read it to its end nor closed its stream; who closed it may only be
        ahead of the others, but not for longer than `GRACE_S`. Without a word of a constructor that is newer than the
        join, this waits for `NO_WORD_S`.
        """
        now_s = time.monotonic() if now_s is None else now_s
        word, waited_s = self.word(generation.key, rank), now_s - since_s
        if word is not None and generation.end_step is not None and word.acknowledged >= generation.end_step:
            return False
        if word is not None and word.has_left:
            return waited_s > GRACE_S
        is_confirmed = word is not None and word.told_s > since_s + CONFIRM_S
        return is_confirmed or waited_s > NO_WORD_S

    def _awaited(self, key: GenerationKey, now_s: float) -> list[tuple[int, RankWord]]:
        with self._lock:
            words = dict(self._of(key))
        furthest = max((word.acknowledged for word in words.values()), default=0)
        found = [(rank, word) for rank, word in words.items() if _is_awaited(word, furthest, now_s)]
        return sorted(found, key=lambda pair: (pair[1].acknowledged, pair[0]))

    def _of(self, key: GenerationKey) -> dict[int, RankWord]:
        number, words = self._words.get(key.stream_key, (-1, {}))
        return words if number == key.generation else {}

    def _words_of(self, key: StreamKey, generation: int) -> dict[int, RankWord] | None:
        """Where to write; None for a generation that is over."""
        number, words = self._words.get(key, (-1, {}))
        if generation > number:
            words = {}
            self._words[key] = generation, words
        return words if generation >= number else None


def _words(report: RankReport, now_s: float) -> Iterable[tuple[int, RankWord]]:
    left, unheard = set(report.left), set(report.unheard)
    columns = zip(report.ranks, report.acknowledged, report.seen_s, report.moved_s, strict=False)
    for rank, acknowledged, seen_s, moved_s in columns:
        yield (
            rank,
            RankWord(
                acknowledged=acknowledged,
                seen_s=now_s - seen_s,
                moved_s=now_s - moved_s,
                told_s=now_s,
                has_left=rank in left,
                is_heard=rank not in unheard,
            ),
        )


def _is_awaited(word: RankWord, furthest: int, now_s: float) -> bool:
    is_behind = word.acknowledged < furthest
    if word.has_left:
        return is_behind
    return now_s - word.seen_s >= SILENT_S or (is_behind and now_s - word.moved_s >= SILENT_S)


def _view(rank: int, word: RankWord, now_s: float) -> RankView:
    quiet_s = now_s - word.seen_s
    state = "left" if word.has_left else "silent" if quiet_s >= SILENT_S else "behind"
    return RankView(rank=rank, last_seen_s=round(quiet_s, 1), acknowledged=word.acknowledged, state=state)
