from __future__ import annotations

import pytest

from loadmaster_flight.constructor.presence import Presence
from loadmaster_flight.wire.control import RankReport


@pytest.fixture
def presence() -> Presence:
    """Ranks 0 and 1, at second 10."""
    return Presence([0, 1], now_s=10.0)


def test_report_when_a_rank_was_not_heard_of_then_it_counts_from_the_start(presence: Presence) -> None:
    presence.hear(0, now_s=12.0)
    assert presence.report({0: 3, 1: 3}, now_s=15.0) == RankReport(
        ranks=[0, 1], acknowledged=[3, 3], seen_s=[3.0, 5.0], moved_s=[3.0, 5.0], left=[], unheard=[1]
    )


def test_report_when_a_rank_is_heard_of_and_stays_then_only_moving_lies_back(presence: Presence) -> None:
    presence.hear(0, now_s=11.0)
    presence.move(0, now_s=11.0)
    presence.hear(0, now_s=30.0)
    report = presence.report({0: 3}, now_s=31.0)
    assert (report.seen_s, report.moved_s) == ([1.0], [20.0])


def test_report_when_a_rank_left_and_asks_again_then_it_is_back(presence: Presence) -> None:
    presence.hear(1, now_s=11.0)
    presence.leave(1)
    assert presence.report({0: 0, 1: 0}, now_s=12.0).left == [1]
    presence.hear(1, now_s=13.0)
    assert presence.report({0: 0, 1: 0}, now_s=14.0).left == []


@pytest.mark.parametrize(
    ("now_s", "says"),
    [(12.0, "rank 1, which is at step 4 for 1 s"), (51.0, "rank 1, last seen 40 s ago")],
)
def test_tell_when_a_rank_is_waited_for_then_silence_goes_before_standing_still(
    presence: Presence, now_s: float, says: str
) -> None:
    presence.hear(1, now_s=11.0)
    assert presence.tell({0: 9, 1: 4}, [1], now_s=now_s) == says


def test_tell_when_there_are_many_then_the_first_are_named_and_the_rest_counted() -> None:
    presence = Presence(range(20), now_s=0.0)
    text = presence.tell(dict.fromkeys(range(20), 0), range(20), now_s=9.0)
    assert text.startswith("rank 0, last seen 9 s ago; rank 1, ")
    assert text.endswith("; and 12 more")
