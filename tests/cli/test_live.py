from __future__ import annotations

import io

from rich.console import Console

from loadmaster_flight.wire.control import ActorView, Role, StreamView
from loadmaster_server.cli.live import status_table


def view(name: str, *, weights: list[float]) -> StreamView:
    return StreamView(
        run="run", stream=name, generation=0, state="open", reason="", planned=9, bound=6, acknowledged=3,
        is_planned_to_end=False, waiting_for=[1], source_names=["web", "code", "held_out"],
        source_tokens=[300, 100, 0], source_weights=weights,
    )  # fmt: skip


def actor(pid: int, role: Role, **stats: float) -> ActorView:
    return ActorView(
        actor_id=f"{role}-{pid}",
        role=role,
        address="grpc://127.0.0.1:40001",
        pid=pid,
        heartbeat_age_s=0.31,
        stats=stats,
    )


def drawn(views: list[StreamView], pids: dict[str, int], actors: list[ActorView]) -> list[str]:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(status_table(views, pids, actors))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_table_when_actors_are_known_then_each_process_has_address_age_and_work():
    pids = {"planner": 1, "loader-0": 2, "constructor-0": 3}
    actors = [actor(3, Role.CONSTRUCTOR, steps_built=7.0), actor(2, Role.LOADER, tokens_measured=1234.0)]
    lines = [line.split() for line in drawn([view("train", weights=[0.5, 0.5, 0.0])], pids, actors)[-3:]]
    assert lines[0] == ["planner", "1"]
    assert lines[1] == ["loader-0", "2", "127.0.0.1:40001", "0.3", "s", "ago", "tokens", "measured", "1,234"]
    assert lines[2][-3:] == ["steps", "built", "7"]


def test_table_when_a_run_has_five_sources_then_it_fits_a_small_terminal():
    pids = {"planner": 1, **{f"loader-{i}": 2 + i for i in range(4)}, **{f"constructor-{i}": 8 + i for i in range(2)}}
    lines = drawn([view("train", weights=[0.5, 0.5, 0.0]), view("held_out", weights=[0.0, 0.0, 1.0])], pids, [])
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_table_when_a_source_has_no_share_then_it_is_left_out():
    lines = drawn([view("train", weights=[0.5, 0.5, 0.0])], {}, [])
    assert any(line.startswith("code") for line in lines)
    assert not any(line.startswith("held_out") for line in lines)
