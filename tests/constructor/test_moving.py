"""What becomes of acknowledgements when ranks move to another constructor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadmaster_flight.constructor.acknowledgement import Acknowledgement
from loadmaster_flight.constructor.builder import StreamBuilder
from loadmaster_flight.constructor.engine import ConstructorEngine
from loadmaster_flight.wire.control import Assignment, HeartbeatReply
from loadmaster_flight.wire.errors import MovedError
from loadmaster_flight.wire.http import PlannerClient
from support.services import KEY, RUN, FakePlanner, wait_until


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    with FakePlanner(world_size=2) as planner:
        yield planner


@pytest.fixture
def engine(planner: FakePlanner) -> Iterator[ConstructorEngine]:
    engine = ConstructorEngine(PlannerClient(planner.url), ticket_key=lambda: KEY)
    yield engine
    engine.close()


def _assign(planner: FakePlanner, engine: ConstructorEngine, ranks: list[int]) -> None:
    """The planner's next answer."""
    assignment = Assignment(
        run=RUN,
        stream="train",
        generation=planner.generation,
        first_step=0,
        ranks=ranks,
        dp_of_rank=ranks,
        mesh=planner.mesh,
        build_ahead=2,
        loaders=planner.routes,
    )
    engine.follow(HeartbeatReply(assignments=[assignment] if ranks else []))


def _acknowledged(engine: ConstructorEngine) -> list[dict[int, int]]:
    """Of each word of the next report: rank -> step."""
    reports = [word.ranks for word in engine.progress()]
    return [dict(zip(report.ranks, report.acknowledged, strict=True)) for report in reports]


def _acknowledge(builder: StreamBuilder, rank: int, step: int) -> None:
    builder.acknowledge(rank, Acknowledgement(ticket_hex="", step=step, host="", is_leaving=True, waits=[]))


def test_report_when_a_rank_has_moved_then_what_it_acknowledged_is_told_until_the_planner_answers(
    planner: FakePlanner, engine: ConstructorEngine
) -> None:
    _assign(planner, engine, [0, 1])
    wait_until(lambda: _acknowledged(engine) == [{0: 0, 1: 0}], "the window")
    _acknowledge(engine.builders()[0], 0, 2)
    _assign(planner, engine, [1])
    assert not engine.wait_told(0)
    assert [_acknowledged(engine)[0] for _ in range(2)] == [{0: 2, 1: 0}] * 2
    _assign(planner, engine, [1])
    assert engine.wait_told(0)
    wait_until(lambda: _acknowledged(engine) == [{1: 0}], "the window of rank 1")


def test_acknowledge_when_the_stream_is_not_served_here_any_more_then_moved(
    planner: FakePlanner, engine: ConstructorEngine
) -> None:
    _assign(planner, engine, [0, 1])
    wait_until(lambda: _acknowledged(engine) == [{0: 0, 1: 0}], "the window")
    builder = engine.builders()[0]
    _assign(planner, engine, [])
    with pytest.raises(MovedError, match="ask the planner again"):
        _acknowledge(builder, 0, 2)
