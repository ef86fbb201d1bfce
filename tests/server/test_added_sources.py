"""Sources that join a run while it trains: frozen once, drawn from the step of the revision that names them first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from loadmaster_flight.spec import RunSpec, ScheduleSpec
from loadmaster_flight.wire.control import CreateRunRequest, RunView, StreamView
from loadmaster_flight.wire.step_plan import StepPlan
from support.editing import Answer, Editor, reference
from support.synthetic import LANES, Cluster, wait_for

BUDGETS = {"plan_ahead": 40, "bind_ahead": 30, "build_ahead": 2}
SOURCE = {"uri": "math.jsonl", "transform": {"text": "text"}}


@dataclass(slots=True)
class Bench:
    """A run of `web` and `code` on a planner, a person at it, and what it would be with `math`."""

    cluster: Cluster
    request: CreateRunRequest
    grown: CreateRunRequest
    editor: Editor = field(init=False)

    def __post_init__(self) -> None:
        self.editor = Editor(self.cluster.server.url)

    @property
    def spec(self) -> RunSpec:
        """As it was created."""
        return RunSpec.model_validate(self.request.spec)

    def add(self, which: str = "math", **more: Any) -> Answer:
        """Freeze one of the sources of the grown run; keywords replace fields of the request."""
        trees = {manifest["name"]: manifest for manifest in self.grown.manifests}
        body = {"name": which, "source": self.grown.spec["sources"][which], "manifest": trees[which]}
        return self.editor.ask("POST", "/sources", body | more)

    def reference(self, last: int, revisions: Sequence[tuple[int, ScheduleSpec]], *, num: int = 3) -> list[str]:
        """Digests of the steps as one process plans them, with `num` sources from the first revision on."""
        sources = dict(list(self.grown.spec["sources"].items())[:num])
        grown = RunSpec.model_validate(self.grown.spec | {"sources": sources})
        return [plan.digest for plan in reference(self.spec, last, revisions, grown=grown)]

    def schedule(self) -> ScheduleSpec:
        """The newest one."""
        return ScheduleSpec.model_validate(self.editor.schedule()["schedule"])

    def under(self, revision: int, first: int, last: int) -> list[StepPlan]:
        """Steps [first, last) once the last of them is planned under a revision."""

        def found() -> list[StepPlan] | None:
            plans = self.cluster.plans(first, last, wait_s=1)
            return plans if len(plans) == last - first and plans[-1].revision == revision else None

        plans: list[StepPlan] = wait_for(found, what=f"steps under revision {revision}")
        return plans


@pytest.fixture
def bench(make_cluster: Callable[..., Cluster], make_run: Callable[..., CreateRunRequest], database_url: str) -> Bench:
    """On either database: steps [0, 40) are planned and [0, 10) bound."""
    cluster = make_cluster(database_url=database_url)
    request, grown = make_run(budgets=BUDGETS), make_run(budgets=BUDGETS, names=("web", "code", "math", "law"))
    cluster.client.post("/runs", request, RunView)
    cluster.loader()
    cluster.open()
    cluster.planned(40)
    assert len(cluster.plans(0, 10, bind=1)) == 10
    return Bench(cluster, request, grown)


def _digests(plans: Sequence[StepPlan]) -> list[str]:
    return [plan.digest for plan in plans]


def test_source_when_added_then_frozen_and_nothing_changes_until_it_is_named(bench: Bench) -> None:
    before = bench.cluster.plans(0, 40)
    answer = bench.add()
    assert (answer.status, answer.body["source"], answer.body["lanes"]) == (201, "math", 4)
    assert bench.add().status == 201
    assert [source["source"] for source in bench.editor.ask("GET", "/sources").body] == ["web", "code", "math"]
    assert bench.editor.ask("GET", "/schedule").body["sources"] == ["web", "code", "math"]
    assert bench.editor.publish({"web": 1}).status == 201
    expected = reference(bench.spec, 40, [(10, bench.schedule())])
    assert _digests(bench.under(1, 10, 40)) == _digests(expected[10:])
    assert _digests(before[:10]) == _digests(bench.cluster.plans(0, 10))
    assert bench.editor.audit() == [("anonymous", "source_added", None), ("ada", "published", 1)]


def test_source_when_a_revision_names_it_then_drawn_from_its_step_on(bench: Bench) -> None:
    assert bench.add().status == 201
    assert bench.editor.publish({"math": 4}).body["revision"]["from_step"] == 10
    after = bench.under(1, 10, 40)
    assert [len(plan.weights_S) for plan in (*bench.cluster.plans(0, 10), *after)] == [2] * 10 + [3] * 30
    assert _digests([*bench.cluster.plans(0, 10), *after]) == bench.reference(40, [(10, bench.schedule())])
    share = sum(plan.source_tokens_S[2] for plan in after) / sum(plan.num_tokens for plan in after)
    assert share == pytest.approx(0.5, abs=0.03)
    pieces = [plan.pieces for plan in after]
    drawn = [(int(e), int(n)) for p in pieces for s, e, n in zip(p.source, p.epoch, p.shard, strict=True) if s == 2]
    assert {epoch for epoch, _ in drawn} >= {0}
    assert {shard for epoch, shard in drawn[:20] if epoch == 0} <= set(range(LANES))
    view = bench.cluster.client.get("/runs/run/streams/train", StreamView)
    assert (view.source_names, len(view.source_tokens)) == (["web", "code", "math"], 3)


def test_source_when_named_for_a_later_step_then_scheduled_and_there_at_that_step(bench: Bench) -> None:
    assert bench.add().status == 201
    constructor = bench.cluster.constructor()
    answer = bench.editor.publish({"math": 4}, at_step=45)
    assert answer.body["scheduled"]["at_step"] == 45
    schedule = ScheduleSpec.model_validate(bench.editor.ask("GET", "/scheduled/1").body["schedule"])
    wait_for(lambda: constructor.assignments, what="an assignment")
    constructor.acknowledge(10)
    plans = bench.under(1, 0, 50)
    assert [len(plan.weights_S) for plan in plans] == [2] * 45 + [3] * 5
    assert _digests(plans) == bench.reference(50, [(45, schedule)])


def test_source_when_the_planner_restarts_then_the_same_steps(bench: Bench) -> None:
    assert bench.add().status == 201
    assert bench.editor.publish({"math": 4}).status == 201
    before = bench.under(1, 0, 40)
    bench.cluster.restart()
    assert len(bench.cluster.plans(0, 20, bind=1)) == 20
    assert bench.editor.publish({"web": 1}, base=1).body["revision"]["from_step"] == 20
    after = bench.under(2, 20, 40)
    assert _digests(bench.cluster.plans(0, 20)) == _digests(before[:20])
    assert [len(plan.weights_S) for plan in after] == [3] * 20
    schedules = [
        ScheduleSpec.model_validate(bench.editor.ask("GET", f"/revisions/{n}").body["schedule"]) for n in (1, 2)
    ]
    assert _digests(after) == bench.reference(40, [(10, schedules[0]), (20, schedules[1])])[20:]


def test_source_when_a_generation_goes_back_before_it_then_replayed_as_it_was(bench: Bench) -> None:
    assert bench.add().status == 201
    assert bench.editor.publish({"math": 4}, at_step=14).status == 201
    before = bench.under(1, 0, 40)
    assert len(bench.cluster.plans(10, 20, bind=1)) == 10
    assert bench.cluster.open(word="m", step=5, parent=0) == 1
    again = wait_for(
        lambda: plans if len(plans := bench.cluster.plans(5, 40, generation=1, wait_s=1)) == 35 else None, what="replay"
    )
    assert _digests(again) == _digests(before[5:])


def test_source_when_an_earlier_one_was_never_named_then_it_is_there_without_weight(bench: Bench) -> None:
    assert [bench.add(name).status for name in ("math", "law")] == [201, 201]
    assert bench.editor.publish({"law": 4}).status == 201
    after = bench.under(1, 10, 40)
    assert [len(plan.weights_S) for plan in after] == [4] * 30
    assert sum(plan.source_tokens_S[2] for plan in after) == 0 < sum(plan.source_tokens_S[3] for plan in after)
    assert _digests(after) == bench.reference(40, [(10, bench.schedule())], num=4)[10:]


def test_source_when_it_differs_from_what_is_frozen_then_409(bench: Bench) -> None:
    assert bench.add().status == 201
    answer = bench.add(source=SOURCE | {"max_bad_ratio": 0.5})
    assert (answer.status, answer.body["code"]) == (409, "CONFLICT")
    assert "max_bad_ratio" in answer.body["detail"]
    assert bench.add("web", source=SOURCE).status == 409


def test_sources_when_added_at_once_then_each_once_and_who_differs_is_told(bench: Bench) -> None:
    """Twelve at once: the same source, another one of its name, and one of another name."""
    asks: list[tuple[str, dict[str, Any]]] = [
        ("math", {}),
        ("math", {"source": SOURCE | {"max_bad_ratio": 0.5}}),
        ("law", {}),
    ]
    barrier = threading.Barrier(4 * len(asks))

    def add(ask: tuple[str, dict[str, Any]]) -> tuple[str, int]:
        barrier.wait(30)
        answer = bench.add(ask[0], **ask[1])
        return f"{ask[0]} {len(ask[1])}", answer.status

    with ThreadPoolExecutor(barrier.parties) as threads:
        answers = set(threads.map(add, 4 * asks))
    assert ("law 0", 201) in answers
    assert len(answers) == 3, "each kind is answered alike"
    assert {status for kind, status in answers if kind.startswith("math")} == {201, 409}
    assert sorted(row["message"] for row in bench.editor.audit_rows()) == ["law", "math"]
    assert [source["source"] for source in bench.editor.ask("GET", "/sources").body][:2] == ["web", "code"]


def test_sources_when_one_is_added_between_two_reads_then_those_that_the_first_knew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = bench.cluster.server.planner
    before = planner.store.runs.definition("run")
    assert bench.add().status == 201
    monkeypatch.setattr(type(planner.store.runs), "definition", lambda *_: before)
    assert [view.source for view in planner.runs.sources("run")] == ["web", "code"]
    answer = bench.editor.ask("POST", "/preview", {"schedule": bench.editor.schedule()["schedule"], "until_step": 200})
    assert answer.status == 200, answer.body
    assert [source["source"] for source in answer.body["sources"]] == ["web", "code"]


@pytest.mark.parametrize(
    ("more", "status", "word"),
    [
        ({"source": {"uri": "x", "transform": {"text": "text"}, "what": 1}}, 422, "what"),
        ({"manifest": {}}, 400, "manifest"),
        ({"name": "other"}, 400, "manifest.name"),
    ],
)
def test_source_when_it_is_wrong_then_refused(bench: Bench, more: dict[str, Any], status: int, word: str) -> None:
    answer = bench.add(**more)
    assert (answer.status, word in answer.body["detail"]) == (status, True), answer.body
    assert len(bench.editor.ask("GET", "/sources").body) == 2


def test_publish_when_a_source_was_never_added_then_refused(bench: Bench) -> None:
    answer = bench.editor.publish({"math": 4})
    assert (answer.status, answer.body["code"]) == (422, "BAD_SPEC")
    assert "weights.math names no source" in answer.body["detail"]


def test_run_when_created_again_after_a_source_was_added_then_the_same_run(bench: Bench) -> None:
    assert bench.add().status == 201
    assert bench.cluster.client.post("/runs", bench.request, RunView).run == "run"


def test_preview_when_a_source_was_added_then_it_has_a_line(bench: Bench) -> None:
    assert bench.add().status == 201
    schedule = bench.editor.schedule()["schedule"]
    schedule["weights"]["math"] = 4
    answer = bench.editor.ask("POST", "/preview", {"schedule": schedule, "until_step": 200})
    assert answer.status == 200, answer.body
    assert [source["source"] for source in answer.body["sources"]] == ["web", "code", "math"]
    assert answer.body["sources"][2]["before"]["tokens"] == 0 < answer.body["sources"][2]["after"]["tokens"]


def test_graph_when_a_source_was_added_then_steps_before_and_after_it_are_drawn(bench: Bench) -> None:
    assert bench.add().status == 201
    assert bench.editor.publish({"math": 4}).status == 201
    bench.under(1, 10, 40)
    for step, sources in ((5, ["web", "code"]), (30, ["web", "code", "math"])):
        graph = bench.editor.ask("GET", f"/streams/train/steps/{step}/graph").body
        assert [node["name"] for node in graph["nodes"] if node["kind"] == "source"] == sources
