"""Who is waited for, from what constructors say of their ranks."""

from __future__ import annotations

import dataclasses

import pytest

from loadmaster_flight.wire.control import RankReport, StreamProgress
from loadmaster_flight.wire.skipping import Skip
from loadmaster_server.runs import RankWatch
from loadmaster_server.runs.presence import GRACE_S, NO_WORD_S
from loadmaster_server.store import GenerationKey, GenerationRecord, GenerationState

KEY = GenerationKey(run="run", stream="train", generation=2)
GENERATION = GenerationRecord(
    key=KEY,
    parent=-1,
    parent_step=0,
    first_step=0,
    mesh={"dp": 2},
    world_size=2,
    state=GenerationState.OPEN,
    code="",
    reason="",
    planned=100,
    bound=50,
    acknowledged=0,
    end_step=None,
    replay_until=None,
    skip=Skip(),
    held_from=0,
    opened_at=0.0,
)


def word(
    ranks: list[int],
    acknowledged: list[int],
    seen_s: list[float],
    *,
    moved_s: list[float] | None = None,
    left: list[int] | None = None,
    unheard: list[int] | None = None,
    generation: int = 2,
) -> StreamProgress:
    report = RankReport(
        ranks=ranks,
        acknowledged=acknowledged,
        seen_s=seen_s,
        moved_s=moved_s or seen_s,
        left=left or [],
        unheard=unheard or [],
    )
    return StreamProgress(run="run", stream="train", generation=generation, step=min(acknowledged), ranks=report)


@pytest.fixture
def watch() -> RankWatch:
    return RankWatch()


def test_text_when_one_rank_is_silent_then_it_says_when_it_was_seen(watch: RankWatch) -> None:
    watch.note([word([0, 1], [9, 7], [0.5, 38.0])], now_s=100.0)
    assert watch.text(KEY, now_s=102.0) == "rank 1, last seen 40 s ago"
    (view,) = watch.views(KEY, now_s=102.0)
    assert (view.rank, view.last_seen_s, view.acknowledged, view.state) == (1, 40.0, 7, "silent")


def test_text_when_one_rank_is_heard_of_but_stays_then_it_says_at_which_step(watch: RankWatch) -> None:
    watch.note([word([0], [9], [0.5]), word([1], [7], [0.5], moved_s=[30.0])], now_s=100.0)
    assert watch.text(KEY, now_s=100.0) == "rank 1, which is at step 7 for 30 s"
    assert [view.state for view in watch.views(KEY, now_s=100.0)] == ["behind"]


def test_text_when_all_ranks_train_a_long_step_then_nobody_is_waited_for(watch: RankWatch) -> None:
    watch.note([word([0, 1], [9, 9], [1.0, 1.5], moved_s=[60.0, 60.0])], now_s=100.0)
    assert watch.text(KEY, now_s=100.0) == ""
    assert watch.views(KEY, now_s=100.0) == []


def test_text_when_a_rank_closed_its_stream_before_the_others_then_it_says_so(watch: RankWatch) -> None:
    watch.note([word([0, 1], [9, 7], [1.0, 1.0], left=[1])], now_s=100.0)
    assert watch.text(KEY, now_s=100.0) == "rank 1, which closed its stream at step 7"


def test_note_when_a_constructor_has_yet_to_hear_of_a_rank_then_the_older_word_stays(watch: RankWatch) -> None:
    watch.note([word([1], [7], [10.0])], now_s=100.0)
    watch.note([word([1], [7], [1.0], unheard=[1])], now_s=101.0)
    assert watch.views(KEY, now_s=101.0)[0].last_seen_s == 11.0
    watch.note([word([1], [8], [0.0])], now_s=102.0)
    assert watch.views(KEY, now_s=102.0) == []


def test_note_when_a_newer_generation_speaks_then_the_older_one_is_forgotten(watch: RankWatch) -> None:
    watch.note([word([0], [7], [60.0])], now_s=100.0)
    watch.note([word([0], [7], [50.0], generation=3)], now_s=100.0)
    watch.note([word([0], [7], [40.0])], now_s=100.0)
    assert watch.word(KEY, 0) is None
    assert watch.text(dataclasses.replace(KEY, generation=3), now_s=100.0) == "rank 0, last seen 50 s ago"


@pytest.mark.parametrize(
    ("told_s", "left", "waited_s", "expected"),
    [
        (99.0, [], 0.5, False),  # what was said before the rank joined again proves nothing
        (100.4, [], 0.5, True),
        (99.0, [], NO_WORD_S + 0.1, True),
        (100.4, [0], 0.5, False),
        (100.4, [0], GRACE_S + 0.1, True),
    ],
)
def test_is_abandoned_when_a_member_joins_again_then_it_depends_on_how_it_went(
    watch: RankWatch, told_s: float, left: list[int], waited_s: float, expected: bool
) -> None:
    watch.note([word([0, 1], [9, 7], [0.1, 0.1], left=left)], now_s=told_s)
    assert watch.is_abandoned(GENERATION, 0, since_s=100.0, now_s=100.0 + waited_s) is expected


def test_is_abandoned_when_the_rank_has_read_everything_then_never(watch: RankWatch) -> None:
    watch.note([word([0, 1], [9, 7], [0.1, 0.1])], now_s=100.4)
    generation = dataclasses.replace(GENERATION, end_step=9)
    assert not watch.is_abandoned(generation, 0, since_s=100.0, now_s=1000.0)
    assert watch.is_abandoned(generation, 1, since_s=100.0, now_s=100.5)
