"""Rates from the times at which acknowledgements rose."""

from __future__ import annotations

from loadmaster_server.live.pace import Pace
from loadmaster_server.store import GenerationKey

KEY = GenerationKey(run="run", stream="train", generation=0)
NEXT = GenerationKey(run="run", stream="train", generation=1)


def test_stretch_when_steps_come_evenly_then_it_is_their_rate() -> None:
    pace = Pace()
    for step in range(11):
        pace.note(KEY, step, now_s=100 + 2 * step)
    stretch = pace.stretch(KEY, 60, now_s=120.5)
    assert stretch is not None
    assert (stretch.first, stretch.last, stretch.window_s, stretch.step_s) == (0, 10, 20, 2.0)


def test_stretch_when_the_window_is_shorter_then_older_steps_do_not_count() -> None:
    pace = Pace()
    for step in range(11):
        pace.note(KEY, step, now_s=100 + (10 if step > 5 else 1) * step)
    stretch = pace.stretch(KEY, 30, now_s=200)
    assert stretch is not None
    assert (stretch.first, stretch.last) == (7, 10)
    assert stretch.step_s == 10


def test_stretch_when_the_stream_stands_still_then_its_rate_falls_and_ends() -> None:
    pace = Pace()
    for step in range(3):
        pace.note(KEY, step, now_s=100 + step)
    late = pace.stretch(KEY, 60, now_s=122)
    assert late is not None
    assert late.step_s == 11
    assert pace.stretch(KEY, 60, now_s=170) is None


def test_stretch_when_a_generation_opens_then_the_old_one_is_forgotten() -> None:
    pace = Pace()
    for step in range(3):
        pace.note(KEY, step, now_s=100 + step)
    pace.note(NEXT, 1, now_s=103)
    pace.note(KEY, 9, now_s=104)
    assert pace.stretch(KEY, 60, now_s=104) is None
    assert pace.stretch(NEXT, 60, now_s=104) is None
    pace.note(NEXT, 2, now_s=105)
    assert pace.stretch(NEXT, 60, now_s=105) is not None


def test_note_when_marks_go_on_for_ever_then_few_are_kept() -> None:
    pace = Pace()
    for step in range(100_000):
        pace.note(KEY, step, now_s=100 + step / 100)
    stretch = pace.stretch(KEY, 600, now_s=100 + 1000)
    assert stretch is not None
    assert 9.9 < 1 / stretch.step_s / 10 < 10.1
    assert len(pace._marks[KEY.stream_key][1]) < 2600
