"""Media over the wire: two loaders send what one engine has, each unit and document to whom the plan says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.loader.process import LoaderProcess
from loadmaster_flight.transforms import decoders
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.step_plan import StepPlan, Units
from loadmaster_flight.wire.tickets import MaterializeTicket, sign

from .media_runs import CLIPS, PICTURES, picture

PARTITIONS = ([[PICTURES, 0, 2], [CLIPS, 0, 1]], [[PICTURES, 1, 2]])
Frozen = tuple[Any, list[Any]]


class Pair:
    """Two loaders with a planner, and an engine of the same run."""

    def __init__(self, frozen: Frozen, planner: Any) -> None:
        self.planner = planner
        self.engine = LoaderEngine(*frozen, cache_dir=None, workers=2)
        self.loaders = [LoaderProcess(planner.url, workers=2) for _ in PARTITIONS]
        self.peers = [FlightPeer(loader.service.address) for loader in self.loaders]
        assert all(loader.link.wait_registered(20) for loader in self.loaders)

    def rows(self) -> list[dict[str, Any]]:
        """What can be planned of both sources."""
        lanes = {PICTURES: 2, CLIPS: 1}
        answers = [
            self.engine.measure(source, 0, [[lane, 0, 0, 0] for lane in range(num)], 500)
            for source, num in lanes.items()
        ]
        return [row for answer in answers for row in answer.to_pylist() if row["verdict"] == Verdict.OK]

    def read(self, plan: StepPlan, *, dp_ranks: list[int], encoder_ranks: list[int]) -> pa.Table:
        """One step from both loaders."""
        self.planner.plans[1] = {plan.step: plan}
        parts = []
        for peer, partitions in zip(self.peers, PARTITIONS, strict=True):
            ticket = MaterializeTicket(
                run="small",
                stream="train",
                generation=1,
                first_step=plan.step,
                last_step=plan.step + 1,
                digests=[plan.digest],
                dp_ranks=dp_ranks,
                partitions=partitions,
                expires_at=time.time() + 60,
                encoder_ranks=encoder_ranks,
            )
            parts.append(peer.read_all(sign(ticket, self.planner.key), timeout_s=60))
        return pa.concat_tables(parts)

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        for loader in self.loaders:
            loader.close()
        self.engine.close()


@pytest.fixture
def make_pair(freeze_media: Callable[..., Frozen], make_planner: Any) -> Iterator[Callable[[], Pair]]:
    pairs: list[Pair] = []

    def make() -> Pair:
        frozen = freeze_media(vision={"max_patches": 16, "over_max": "shard"})
        pairs.append(Pair(frozen, make_planner(frozen)))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.close()
    decoders._chosen.clear()


def in_order(pieces: pa.Table) -> list[dict[str, Any]]:
    place = ("source", "epoch", "shard", "block", "pos")
    return sorted(pieces.to_pylist(), key=lambda piece: [piece[name] for name in place])


def encoded_by(plan: StepPlan, rows: list[dict[str, Any]], num_ranks: int) -> StepPlan:
    """The plan with its units dealt to ranks in turn."""
    by_place = {(r["source"], r["shard"], r["block"], r["pos"]): len(r["image_patches"] or ()) for r in rows}
    p = plan.pieces
    places = zip(p.source.tolist(), p.shard.tolist(), p.block.tolist(), p.pos.tolist(), strict=True)
    piece_U = [piece for piece, place in enumerate(places) for _ in range(by_place[place])]
    rank_U = [unit % num_ranks for unit in range(len(piece_U))]
    units = Units(piece_U=pa.array(piece_U).to_numpy(), rank_U=pa.array(rank_U).to_numpy())
    return replace(plan, units=units).with_digest()


def test_materialize_when_two_loaders_serve_a_step_they_send_what_one_engine_has(
    make_pair: Callable[[], Pair], plan_of: Any
) -> None:
    pair = make_pair()
    rows = pair.rows()
    plan = plan_of(0, rows)
    expected = pa.Table.from_batches([pair.engine.materialize([plan])])
    assert in_order(pair.read(plan, dp_ranks=[0], encoder_ranks=[])) == in_order(expected)


def test_materialize_when_tickets_name_encoder_ranks_sends_their_units_and_no_other(
    make_pair: Callable[[], Pair], plan_of: Any
) -> None:
    pair = make_pair()
    rows = pair.rows()
    plan = encoded_by(plan_of(0, rows, dp=2), rows, num_ranks=4)
    whole = in_order(pa.Table.from_batches([pair.engine.materialize([plan])]))
    for dp_ranks, encoder_ranks in (([0], [0, 1]), ([1], [2, 3])):
        got = in_order(pair.read(plan, dp_ranks=dp_ranks, encoder_ranks=encoder_ranks))
        part = plan.of_ranks(set(dp_ranks), encoder_ranks)
        pieces = pair.engine.materialize([part], dp_ranks=dp_ranks, encoder_ranks=encoder_ranks)
        assert got == in_order(pa.Table.from_batches([pieces]))
        assert 0 < sum(len(piece["pixels"] or b"") for piece in got) < sum(len(p["pixels"] or b"") for p in whole)
        assert any(not piece["tokens"] for piece in got)


def test_materialize_when_pixels_do_not_decode_journals_its_reason_for_whoever_asks(
    make_pair: Callable[[], Pair], plan_of: Any
) -> None:
    pair = make_pair()
    rows = pair.rows()
    plan = encoded_by(plan_of(0, rows, dp=2), rows, num_ranks=2)
    own, broken = decoders.installed_decoders(), picture(46)

    def decode(data: bytes, *arguments: Any) -> Any:
        if data == broken:
            raise ValueError("pixels do not add up")
        return own.decode_image(data, *arguments)

    decoders.use_decoders(replace(own, decode_image=decode))
    for _ in range(2):
        for rank in (0, 1):
            got = in_order(pair.read(plan, dp_ranks=[rank], encoder_ranks=[rank]))
            masked = [piece for piece in got if piece["is_masked"]]
            assert [(piece["block"], piece["row"]) for piece in masked] in ([(1, 16)], [])
            assert not any(any(piece["pixels"]) for piece in masked)
    reports = [(report["row"] + 30 * report["block"], report["reason"]) for report in pair.planner.verdicts]
    assert set(reports) == {(46, "ValueError: pixels do not add up")}
