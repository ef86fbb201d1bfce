"""What screens read, of a run on a real planner."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loadmaster_flight.wire.control import CreateRunRequest, SourceReport, VerdictReport
from loadmaster_flight.wire.errors import BadRequestError, NotFoundError
from support.live_run import LiveRun
from support.synthetic import wait_for


def test_overview_when_ranks_tell_their_waits_then_steps_and_the_slowest_have_them(live_run: LiveRun) -> None:
    for step in (1, 2, 3):
        live_run.acknowledge(step, waits=[0.1, 0.1 * step])
    told = wait_for(
        lambda: found if (found := live_run.read("/overview"))["waits"]["step"] == [0, 1, 2] else None,
        what="three steps to be told of",
    )
    assert told["waits"]["max_s"] == [0.1, 0.2, 0.3]
    assert told["waits"]["mean_s"] == [0.1, 0.15, 0.2]
    assert told["waits"]["num_ranks"] == [2, 2, 2]
    assert [line["rank"] for line in told["slowest_ranks"]] == [1, 0]
    assert told["state"] == "open"
    assert told["tokens"] == sum(plan.num_tokens for plan in live_run.cluster.plans(0, 3))
    assert told["last_checkpoint"]["step"] % 4 == 0


def test_overview_when_nobody_joined_then_what_is_not_known_is_null(live_run: LiveRun) -> None:
    frozen = live_run.read("/definition")
    other = CreateRunRequest(spec=frozen["spec"] | {"run": "other"}, manifests=frozen["manifests"])
    live_run.cluster.client.request("POST", "/runs", body=other)
    told = live_run.cluster.client.request("GET", "/runs/other/overview")
    assert b'"generation":-1' in told
    assert b'"tokens_per_s":null' in told
    assert b'"num_ranks":0' in told


def test_overview_when_the_run_is_not_there_then_it_is_refused(live_run: LiveRun) -> None:
    for path in ("overview", "graph", "mesh", "balance", "sources/health", "checkpoints"):
        with pytest.raises(NotFoundError, match="nowhere"):
            live_run.cluster.client.request("GET", f"/runs/nowhere/{path}")


def test_mesh_when_a_rank_stays_behind_then_it_alone_is_behind(make_live_run: Callable[..., LiveRun]) -> None:
    run = make_live_run(4, mesh={"pp": 2})
    ages = [0.1, 0.1, 0.1, 40.0]
    run.acknowledge(1, waits=[0.0] * 4, seen_s=ages)
    run.acknowledge(2, acknowledged=[2, 2, 1, 2], moved_s=[0.1, 0.1, 9.0, 0.1], seen_s=ages)
    ranks = wait_for(
        lambda: found if (found := run.read("/mesh")["ranks"])["acknowledged"] == [2, 2, 1, 2] else None,
        what="the ranks to be told of",
    )
    assert ranks["state"] == ["ok", "ok", "behind", "silent"]
    assert ranks["coords"]["pp"] == [0, 0, 1, 1]
    assert ranks["coords"]["dp"] == [0, 1, 0, 1]
    assert ranks["host"] == ["node-0"] * 4
    assert ranks["constructor"] == [run.constructor.address] * 4
    assert ranks["last_wait_s"] == [0.0] * 4


def test_mesh_when_steps_are_planned_then_costs_are_those_of_the_plans(live_run: LiveRun) -> None:
    live_run.acknowledge(3)
    told = live_run.read("/mesh")
    assert sum(told["ranks"]["cost"]) == pytest.approx(2.0, abs=1e-3)
    assert told["skew"]["cost"] == pytest.approx(max(told["ranks"]["cost"]), abs=1e-3)
    assert sum(told["ranks"]["tokens"]) == pytest.approx(
        sum(plan.num_tokens for plan in live_run.cluster.plans(0, 3)) / 3, abs=2
    )


def test_graph_when_one_loader_and_one_constructor_are_there_then_all_flows_are_exact(live_run: LiveRun) -> None:
    for step in (1, 2, 3, 4):
        live_run.acknowledge(step)
    graph = wait_for(
        lambda: found if (found := live_run.read("/graph"))["window_s"] else None, what="two acknowledgements"
    )
    kinds = [node["kind"] for node in graph["nodes"]]
    assert kinds == ["planner", "source-group", "source-group", "loader", "constructor", "rank-group"]
    rates = {(edge["from"].split(":")[0], edge["to"].split("-")[0]): edge["rate"] for edge in graph["edges"]}
    into = sum(edge["rate"] for edge in graph["edges"] if edge["from"].startswith("source:"))
    assert rates["loader-1", "constructor"] == pytest.approx(into, abs=0.2)
    assert rates["planner", "constructor"] is None
    assert graph["groups"] == []
    with pytest.raises(NotFoundError, match="expand must be one of"):
        live_run.read("/graph", expand="sources:web")


def test_balance_when_steps_are_served_then_shares_and_errors_are_the_plans(live_run: LiveRun) -> None:
    told = live_run.read("/balance", **{"from": 0, "to": 4, "step": 2})
    plans = live_run.cluster.plans(0, 4)
    assert told["steps"]["step"] == [0, 1, 2, 3]
    assert told["steps"]["num_tokens"] == [plan.num_tokens for plan in plans]
    assert told["steps"]["digest"] == [plan.digest[:16] for plan in plans]
    assert told["steps"]["fill"] == pytest.approx([plan.num_tokens / (4 * 64) for plan in plans], abs=1e-4)
    assert told["shares"]["source"] == ["web", "code"]
    assert told["shares"]["planned"] == [[0.75] * 4, [0.25] * 4]
    served = [plan.source_tokens_S[0] / plan.num_tokens for plan in plans]
    assert told["shares"]["served"][0] == pytest.approx(served, abs=1e-6)
    assert sum(row[-1] for row in told["shares"]["error_tokens"]) == pytest.approx(0, abs=2)
    assert told["ranks"]["dp"] == [0, 1]
    assert sum(told["ranks"]["tokens"]) == plans[2].num_tokens
    assert told["steps"]["skew"][2] == pytest.approx(max(told["ranks"]["cost"]), abs=1e-3)
    assert live_run.read("/balance", **{"from": 0, "to": 3, "step": -1})["ranks"] == told["ranks"]


def test_balance_when_asked_for_what_is_not_there_then_it_says_so(live_run: LiveRun) -> None:
    with pytest.raises(NotFoundError, match="step 9999"):
        live_run.read("/balance", step=9999)
    with pytest.raises(BadRequestError, match="from and to"):
        live_run.read("/balance", **{"from": 9, "to": 3})
    with pytest.raises(BadRequestError, match="'prose'"):
        live_run.read("/balance", sources="web,prose")
    assert live_run.read("/balance", sources="code")["shares"]["source"] == ["code"]


def test_sources_when_a_loader_tells_of_errors_then_they_are_shown_worst_first(live_run: LiveRun) -> None:
    live_run.acknowledge(2)
    live_run.loader.sources = [
        SourceReport(
            run="run", source=[0, 1], reads=[10, 20], read_bytes=[1, 1], p50_ms=[1.0, 2.0], p99_ms=[3.0, 4.0],
            errors=[0, 2], retries=[0, 5], last_error=["", "403 Forbidden"], last_error_s=[-1.0, 1.0],
            is_failing=[False, True],
        )
    ]  # fmt: skip
    rows = wait_for(
        lambda: found if (found := live_run.read("/sources/health"))["counts"].get("failing") else None,
        what="the error to be told",
    )["rows"]
    assert [row["name"] for row in rows] == ["code", "web"]
    assert rows[0]["state"] == "failing"
    assert (rows[0]["errors"], rows[0]["retries"], rows[0]["read_p99_ms"]) == (2, 5, 4.0)
    assert rows[0]["last_error"] == "403 Forbidden"
    assert rows[1]["state"] == "ok"
    assert rows[0]["tokens"] + rows[1]["tokens"] == live_run.read("/overview")["tokens"]
    assert live_run.read("/overview")["unhealthy_sources"][0]["source"] == "code"
    assert [row["name"] for row in live_run.read("/sources/health", state="failing")["rows"]] == ["code"]


def test_sources_when_paged_then_every_one_comes_once(live_run: LiveRun) -> None:
    first = live_run.read("/sources/health", limit=1)
    second = live_run.read("/sources/health", limit=1, after=first["next_after"])
    assert [first["rows"][0]["name"], second["rows"][0]["name"]] == ["code", "web"]
    assert second["next_after"] is None
    assert live_run.read("/sources/health", q="WE")["total"] == 1


def test_sources_when_samples_are_masked_then_they_are_counted(live_run: LiveRun) -> None:
    report = VerdictReport(
        stream="train", generation=0, step=1, source=1, epoch=0, shard=0, block=0, row=3, reason="no JPEG"
    )
    live_run.cluster.client.request("POST", "/runs/run/verdicts", body=report)
    rows = {row["name"]: row["verdicts"] for row in live_run.read("/sources/health")["rows"]}
    assert rows["code"] == {"bad": 0, "skipped": 0, "over_long": 0, "masked": 1}
    assert rows["web"]["masked"] == 0


def test_checkpoints_when_listed_then_those_of_the_lineage_can_be_gone_on_from(live_run: LiveRun) -> None:
    live_run.acknowledge(5)
    told = wait_for(
        lambda: found if (found := live_run.read("/checkpoints"))["rows"][0]["step"] == 16 else None,
        what="all that may be planned",
    )
    by_step = {row["step"]: row for row in told["rows"]}
    assert by_step[4]["is_restorable"]
    assert by_step[4]["bytes"] > 0
    assert abs(by_step[4]["at"] - told["at"]) < 600
    assert not by_step[8]["is_restorable"]
    assert "acknowledged" in by_step[8]["reason"]
    assert told["total_bytes"] == sum(row["bytes"] for row in told["rows"])
    page = live_run.read("/checkpoints", limit=1)
    assert page["next_before"] == 1
    assert live_run.read("/checkpoints", limit=1, before=1)["rows"][0] == told["rows"][1]


def test_checkpoints_when_a_generation_was_left_then_what_came_after_is_refused(live_run: LiveRun) -> None:
    live_run.acknowledge(5)
    live_run.cluster.open(2, word="again", step=4, parent=0)
    rows = live_run.read("/checkpoints")["rows"]
    left = {row["step"]: row for row in rows if row["generation"] == 0}
    assert left[4]["is_restorable"]
    assert "left generation 0 at step 4" in left[8]["reason"]
