"""What is remembered of every rank."""

from __future__ import annotations

import numpy as np

from loadmaster_flight.wire.control import RankReport, StreamProgress
from loadmaster_server.live.ranks import KEPT_STEPS, RankBoards
from loadmaster_server.store import GenerationKey

KEY = GenerationKey(run="run", stream="train", generation=3)


def progress(generation: int = 3, **report: object) -> StreamProgress:
    ranks = RankReport(**report)  # type: ignore[arg-type]
    return StreamProgress(run="run", stream="train", generation=generation, step=0, ranks=ranks)


def word(rank: int, acknowledged: int, seen_s: float, **more: object) -> StreamProgress:
    columns = {"ranks": [rank], "acknowledged": [acknowledged], "seen_s": [seen_s], "moved_s": [seen_s]}
    return progress(**(columns | more))


def test_snapshot_when_a_rank_is_told_of_then_its_ages_go_on() -> None:
    boards = RankBoards()
    boards.note([word(1, 7, 0.5)], now_s=100)
    found = boards.snapshot(KEY, 2, now_s=103)
    assert found.acknowledged_W.tolist() == [0, 7]
    assert found.seen_s_W[1] == 3.5
    assert np.isnan(found.seen_s_W[0])
    assert found.is_heard_W.tolist() == [False, True]


def test_note_when_another_constructor_knows_less_then_it_is_not_believed() -> None:
    boards = RankBoards()
    boards.note([word(0, 7, 0.1)], now_s=100)
    boards.note([word(0, 3, 0.0, unheard=[0])], now_s=101)
    boards.note([word(0, 4, 5.0)], now_s=101)
    assert boards.snapshot(KEY, 1, now_s=101).acknowledged_W.tolist() == [7]
    boards.note([word(0, 9, 0.0)], now_s=102)
    assert boards.snapshot(KEY, 1, now_s=102).acknowledged_W.tolist() == [9]


def test_waits_when_ranks_tell_at_different_times_then_each_step_has_its_own() -> None:
    boards = RankBoards()
    boards.note([word(0, 2, 0, wait_rank=[0, 0], wait_step=[0, 1], wait_s=[0.5, 0.25])], now_s=100)
    boards.note([word(1, 1, 0, wait_rank=[1], wait_step=[0], wait_s=[2.0])], now_s=101)
    found = boards.snapshot(KEY, 2, now_s=101)
    assert found.step_T.tolist() == [0, 1]
    assert found.waits(0, 1).tolist() == [[0.5], [2.0]]
    assert np.isnan(found.waits(1, 2)[1, 0])
    assert found.last_wait_W.tolist() == [0.25, 2.0]


def test_waits_when_more_steps_come_than_are_kept_then_the_oldest_go() -> None:
    boards = RankBoards()
    for step in range(3 * KEPT_STEPS):
        boards.note([word(0, step + 1, 0, wait_rank=[0], wait_step=[step], wait_s=[float(step)])], now_s=100)
    found = boards.snapshot(KEY, 1)
    assert found.step_T.tolist() == list(range(2 * KEPT_STEPS, 3 * KEPT_STEPS))
    assert found.wait_WT[0].tolist() == found.step_T.tolist()


def test_note_when_a_generation_is_over_then_it_is_ignored_and_a_new_one_begins_anew() -> None:
    boards = RankBoards()
    boards.note([word(0, 7, 0)], now_s=100)
    boards.note([progress(2, ranks=[0], acknowledged=[99], seen_s=[0.0], moved_s=[0.0])], now_s=100)
    assert boards.snapshot(KEY, 1).acknowledged_W.tolist() == [7]
    boards.note([progress(4, ranks=[0], acknowledged=[8], seen_s=[0.0], moved_s=[0.0])], now_s=100)
    assert boards.snapshot(KEY, 1).is_heard_W.tolist() == [False]


def test_note_when_a_report_names_impossible_ranks_then_nothing_grows() -> None:
    boards = RankBoards()
    boards.note([word(-1, 1, 0), word(1 << 40, 1, 0)], now_s=100)
    assert boards.snapshot(KEY, 1).is_heard_W.tolist() == [False]
