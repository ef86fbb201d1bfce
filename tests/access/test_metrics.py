"""Who may read `/metrics`."""

from __future__ import annotations

from loadmaster_server.access import Role
from support.gate import ORIGIN, Gate
from support.scraped import parsed

METRICS = f"{ORIGIN}/metrics"


def test_metrics_when_local_then_anybody_on_the_machine_reads_them(local: Gate) -> None:
    answer = local.client().get(METRICS)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert "loadmaster_actors" in answer.text


def test_metrics_when_everything_needs_a_token_then_viewers_and_scrapers_read_them(guarded: Gate) -> None:
    assert guarded.client().get(METRICS).status_code == 401
    assert guarded.bearer("trainer", Role.PROCESS).get(METRICS).status_code == 403
    for role in (Role.VIEWER, Role.ADMIN, Role.METRICS):
        assert guarded.bearer(f"a {role.value}", role).get(METRICS).status_code == 200


def test_metrics_role_when_it_asks_for_anything_else_then_refused_and_counted(guarded: Gate) -> None:
    scraper = guarded.bearer("prometheus", Role.METRICS)
    for path in ("/runs", "/stats", "/actors", "/tokens", "/audit"):
        answer = scraper.get(path)
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), path
    guarded.client().get("/runs")
    found = parsed(scraper.get(METRICS).text)
    assert found.one("loadmaster_planner_refusals_total", code="FORBIDDEN") == 5
    assert found.one("loadmaster_planner_refusals_total", code="UNAUTHENTICATED") == 1
