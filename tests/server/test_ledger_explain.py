"""The ledger explains steps and samples, over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.wire.actor import ActorLink
from loadmaster_flight.wire.control import CreateRunRequest, Role, RunView, VerdictReport
from loadmaster_flight.wire.errors import BadRequestError, NotFoundError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.ledger import PieceView, SampleView, StepView
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_server.ledger import naming
from loadmaster_server.planning.state import PlannerState
from loadmaster_server.store import GenerationKey
from support.synthetic import Cluster, synthetic_row, synthetic_row_number, wait_for

MakeRun = Callable[..., CreateRunRequest]
NAMES = ("web", "code")


@pytest.fixture
def start(cluster: Cluster, make_run: MakeRun) -> Callable[..., Cluster]:
    """A cluster with twelve planned steps."""

    def begin(world_size: int = 2, *, alter: Callable[..., Any] | None = None, **spec: Any) -> Cluster:
        cluster.client.post("/runs", make_run(**spec), RunView)
        cluster.loader(**({"alter": alter} if alter else {}))
        cluster.open(world_size)
        cluster.planned(12)
        return cluster

    return begin


def _step(cluster: Cluster, step: int, **query: Any) -> StepView:
    return cluster.client.get(f"/runs/run/steps/{step}", StepView, **query)


def _sample(cluster: Cluster, sample: str, **query: Any) -> SampleView:
    return cluster.client.get("/runs/run/samples", SampleView, sample=sample, **query)


def _key(piece: PieceView) -> tuple[int, ...]:
    return (NAMES.index(piece.source), piece.epoch, piece.lane, piece.shard, piece.block, piece.pos, piece.first_token)


def test_step_when_read_then_all_its_pieces_in_their_places(start: Callable[..., Cluster]) -> None:
    cluster = start()
    plan, view = cluster.plans(5, 6)[0], _step(cluster, 5)
    p = plan.pieces
    columns = (p.source, p.epoch, p.lane, p.shard, p.block, p.pos, p.first_token)
    places = dict(zip(zip(*(c.tolist() for c in columns), strict=True), p.bin.tolist(), strict=True))
    assert {_key(v): v.dp * plan.bins_per_rank + v.microbatch for v in view.pieces} == places
    assert (view.step, view.generation, view.state, view.revision) == (5, 0, "planned", 0)
    assert (view.digest, view.num_pieces) == (plan.digest, len(p))
    assert [piece.sample for piece in view.pieces] == [
        f"{v.source}/{v.shard}/{v.block}/{synthetic_row_number(v.pos)}@{v.epoch}"
        + (f":{v.first_token}" if v.first_token else "")
        for v in view.pieces
    ]
    assert {piece.uri for piece in view.pieces} <= {f"{name}-{i}.jsonl" for name in NAMES for i in range(12)}


def test_step_when_a_rank_is_asked_for_then_its_dp_rank_alone(start: Callable[..., Cluster]) -> None:
    cluster = start()
    whole, mine = _step(cluster, 4), _step(cluster, 4, rank=1)
    assert mine.pieces == [piece for piece in whole.pieces if piece.dp == 1]
    first = _step(cluster, 4, rank=1, microbatch=0)
    assert first.pieces == [piece for piece in mine.pieces if piece.microbatch == 0]
    assert [piece.slot for piece in first.pieces] == list(range(len(first.pieces)))
    with pytest.raises(NotFoundError, match=r"rank must be in \[0, 2\)"):
        _step(cluster, 4, rank=2)
    with pytest.raises(NotFoundError, match=r"microbatch must be in \[0, 2\)"):
        _step(cluster, 4, microbatch=2)


def test_step_when_pieces_waited_then_who_drew_them_and_the_credit_of_then(start: Callable[..., Cluster]) -> None:
    cluster = start()
    store = cluster.server.planner.store
    waited = [piece for step in range(12) for piece in _step(cluster, step).pieces if piece.waited]
    assert waited
    found = store.plans.checkpoint(GenerationKey(run="run", stream="train", generation=0), 8)
    assert found is not None
    state = PlannerState.from_bytes(found[1])
    queue = {tuple(row[:4]): row[4] for row in state.queue.values_NP[:, [7, 3, 4, 0, 10]].tolist()}
    later = {
        (NAMES.index(piece.source), piece.shard, piece.block, piece.pos): piece.drawn_at
        for step in range(8, 12)
        for piece in _step(cluster, step).pieces
        if piece.drawn_at < 8
    }
    assert later
    assert later.items() <= queue.items()
    shares = _step(cluster, 7).shares
    assert [share.credit for share in shares] == [credit >> 30 for credit in state.credit_S]
    assert [share.placed_tokens for share in shares] == list(state.placed_tokens_S)
    after = {share.source: share.credit for share in shares}
    before = {share.source: share.credit for share in _step(cluster, 6).shares}
    drawn = next(piece for piece in _step(cluster, 7).pieces if piece.drawn_at == 7)
    assert (drawn.credit_before, drawn.credit_after) == (before[drawn.source], after[drawn.source])


def test_step_when_text_is_asked_for_then_the_loader_decodes_it(start: Callable[..., Cluster]) -> None:
    cluster = start()
    for piece in _step(cluster, 3, text=1, rank=0).pieces:
        assert piece.text == f"text {piece.row}"
        row = synthetic_row(NAMES.index(piece.source), piece.epoch, piece.lane, piece.shard // 4, piece.pos)
        assert piece.sample_tokens == row["num_tokens"]
    assert {piece.text for piece in _step(cluster, 3).pieces} == {None}


def test_step_when_no_loader_is_left_then_positions_stand_for_rows_and_it_says_why(
    cluster: Cluster, make_run: MakeRun
) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    loader = cluster.loader()
    cluster.open()
    cluster.planned(4)
    loader.close()
    view = _step(cluster, 2)
    assert {piece.row for piece in view.pieces} == {-1}
    first = view.pieces[0]
    assert first.sample == f"{first.source}/{first.shard}/0/pos {first.pos}@0"
    assert any("cannot be told" in note for note in view.notes)


def test_step_when_a_loader_never_answers_then_it_is_asked_once_and_no_more(
    cluster: Cluster, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class NotedPeer(FlightPeer):
        def __init__(self, address: str, **more: Any) -> None:
            asked.append(address)
            super().__init__(address, **more)

    monkeypatch.setattr(naming, "CALL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(naming, "FlightPeer", NotedPeer)
    cluster.client.post("/runs", make_run(), RunView)
    loader = cluster.loader()
    cluster.open()
    cluster.planned(4)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        link = ActorLink(cluster.server.url, role=Role.LOADER, address=address, on_desired=lambda _: None)
        link.start()
        assert link.wait_registered(30)
        loader.close()
        owners = cluster.server.planner.store.actors.partition_owners
        wait_for(lambda: all(a == address for s in (0, 1) for _, a in owners("run", s).values()), what="its leases")
        view = _step(cluster, 3)
        link.close()
    assert asked == [address]
    assert len({(piece.source, piece.lane) for piece in view.pieces}) > 1
    assert any("cannot be told" in note for note in view.notes)


def test_step_when_a_sample_is_masked_then_its_reason(start: Callable[..., Cluster]) -> None:
    cluster = start()
    piece = _step(cluster, 1).pieces[0]
    place = {name: getattr(piece, name) for name in ("epoch", "shard", "block", "row")}
    report = VerdictReport(
        stream="train", generation=0, step=1, source=NAMES.index(piece.source), reason="cut short", **place
    )
    cluster.client.request("POST", "/runs/run/verdicts", body=report)
    masked = [found for found in _step(cluster, 1).pieces if found.verdict == "masked"]
    assert [(found.sample, found.reason) for found in masked] == [(piece.sample, "cut short")]


def test_step_when_it_is_not_planned_then_refused(start: Callable[..., Cluster]) -> None:
    with pytest.raises(NotFoundError, match="step 99999 of run/train is not planned"):
        _step(start(), 99999)


def test_sample_when_it_is_planned_then_its_step_and_place(start: Callable[..., Cluster]) -> None:
    cluster = start()
    piece = next(piece for piece in _step(cluster, 6).pieces if not piece.first_token)
    view = _sample(cluster, piece.sample)
    assert piece in [found for step in view.steps for found in step.pieces]
    assert view.verdict == ""


def test_sample_when_it_was_cut_then_all_its_pieces(start: Callable[..., Cluster]) -> None:
    cluster = start(batch={"seq_len": 48, "microbatches": 4, "layout": "concat"})
    cut = next(piece for step in range(2, 12) for piece in _step(cluster, step).pieces if piece.first_token)
    view = _sample(cluster, cut.sample)
    pieces = sorted((p.first_token, p.num_tokens) for step in view.steps for p in step.pieces)
    stops = np.cumsum([0, *(num for _, num in pieces)]).tolist()
    assert [first for first, _ in pieces] == stops[:-1]
    assert stops[-1] == cut.sample_tokens


def test_sample_when_a_verdict_leaves_it_out_then_that(start: Callable[..., Cluster]) -> None:
    def skip(row: dict[str, Any]) -> dict[str, Any]:
        is_skipped = row["pos"] == 0
        return row | ({"verdict": Verdict.SKIPPED, "reason": "empty", "num_tokens": 0} if is_skipped else {})

    cluster = start(alter=skip)
    view = _sample(cluster, f"web/0/0/{synthetic_row_number(0)}@0")
    assert (view.steps, view.verdict) == ([], "measured: empty")


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ("web-0", "must look like source/shard/block/row@epoch"),
        ("wed/0/0/1@0", "source must be one of"),
        ("web/0/0/4000@0", "there is no row 4000"),
    ],
)
def test_sample_when_it_is_none_then_refused_with_the_reason(
    start: Callable[..., Cluster], sample: str, said: str
) -> None:
    with pytest.raises(BadRequestError, match=said):
        _sample(start(1), sample)
