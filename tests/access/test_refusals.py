"""How many refusals the audit log takes."""

from __future__ import annotations

from loadmaster_server.access.caller import Caller
from loadmaster_server.access.refusals import MAX_IN_WINDOW, WINDOW_S, RefusalLog
from support.gate import Gate


def _caller(route: str) -> Caller:
    return Caller(
        method="GET", target=f"GET /{route}", route=route, host="h", origin="", fetch_site="", bearer="", cookie="",
        csrf="", address="::1", agent="",
    )  # fmt: skip


def test_refusals_when_alike_then_once_a_window_with_the_rest_counted(local: Gate) -> None:
    now = [0.0]
    log = RefusalLog(local.planner.store.access, clock=lambda: now[0])
    say = {"author": "ada", "code": "FORBIDDEN", "run": "", "message": "no"}
    assert [log.note(_caller("a"), **say) for _ in range(4)] == [True, False, False, False]
    assert log.note(_caller("b"), **say)
    assert log.note(_caller("a"), **(say | {"author": "bob"}))
    now[0] = WINDOW_S
    assert log.note(_caller("a"), **say)
    rows = local.planner.store.audit.read(action="refused")
    assert [row.details["left_out"] for row in reversed(rows)] == [0, 3, 0, 0]


def test_refusals_when_all_differ_then_no_more_than_so_many_a_window(local: Gate) -> None:
    log = RefusalLog(local.planner.store.access, clock=lambda: 0.0)
    say = {"author": "ada", "code": "FORBIDDEN", "run": "", "message": "no"}
    written = [log.note(_caller(str(i)), **say) for i in range(MAX_IN_WINDOW + 5)]
    assert written == [True] * MAX_IN_WINDOW + [False] * 5
