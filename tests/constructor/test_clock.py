"""How a constructor says that its time was spent, and what it hands on of its ranks' waits."""

from __future__ import annotations

import pytest

from loadmaster_flight.constructor.acknowledgement import MAX_HOST, MAX_WAITS, Acknowledgement
from loadmaster_flight.constructor.presence import Presence
from loadmaster_flight.constructor.process import ConstructorProcess
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.stages import BLOCKED, BUSY, IDLE, StageClock
from support.services import FakePlanner, wait_until


def test_stats_when_no_rank_reads_then_it_is_blocked_once_it_has_built_ahead() -> None:
    with FakePlanner() as planner, ConstructorProcess(planner.url) as process:
        wait_until(lambda: process.engine.stats().get(BLOCKED, 0) > 0.05, "the constructor to be blocked")
        stats = process.engine.stats()
        assert stats[BUSY] > 0
        assert stats[IDLE] > 0
        assert process.engine.progress()[0].steps_ready == 3


def test_clock_when_states_are_nested_then_each_second_counts_once() -> None:
    clock = StageClock()
    with clock.doing(BUSY):
        assert list(clock.each(iter([1, 2]), IDLE)) == [1, 2]
        with clock.doing(BLOCKED):
            pass
    seconds = clock.read()
    assert set(seconds) == {BUSY, BLOCKED, IDLE}
    assert all(value >= 0 for value in seconds.values())
    assert clock.read()[IDLE] > seconds[IDLE]
    assert clock.read()[BUSY] == seconds[BUSY]


def test_report_when_ranks_tell_their_waits_then_each_is_told_once() -> None:
    presence = Presence([0, 1], now_s=0.0)
    presence.tell_waits(1, [(4, 0.5), (5, 0.25)])
    presence.tell_host(1, "node-7")
    first, second = (presence.report({0: 5, 1: 6}, now_s=1.0) for _ in range(2))
    assert (first.wait_rank, first.wait_step, first.wait_s) == ([1, 1], [4, 5], [0.5, 0.25])
    assert second.wait_rank == []
    assert first.hosts == second.hosts == {"node-7": [1]}


@pytest.mark.parametrize(
    "body",
    [
        {"step": 1},
        {"ticket_hex": "00", "step": "1"},
        {"ticket_hex": "00", "step": 1, "host": "h" * (MAX_HOST + 1)},
        {"ticket_hex": "00", "step": 1, "waits": [[0, 1.0]] * (MAX_WAITS + 1)},
        {"ticket_hex": "00", "step": 1, "waits": [[0, float("nan")]]},
        {"ticket_hex": "00", "step": 1, "waits": [[0, -1.0]]},
        {"ticket_hex": "00", "step": 1, "waits": [[-1, 1.0]]},
        {"ticket_hex": "00", "step": 1, "waits": {"0": 1.0}},
    ],
)
def test_acknowledgement_when_a_field_is_of_another_kind_then_refused(body: dict[str, object]) -> None:
    with pytest.raises(BadRequestError, match="acknowledgement"):
        Acknowledgement.of(body)


def test_acknowledgement_when_an_older_client_says_less_then_taken() -> None:
    word = Acknowledgement.of({"ticket_hex": "00", "step": 3})
    assert (word.step, word.waits, word.host, word.is_leaving) == (3, (), "", False)
