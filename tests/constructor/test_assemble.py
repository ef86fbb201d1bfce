"""Assembly against a reading of the contract that goes token by token."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.constructor.assemble import assemble
from loadmaster_flight.spec import BatchSpec
from loadmaster_flight.wire.errors import BadRequestError, InternalError
from loadmaster_flight.wire.schemas import batch_schema

Make = Callable[..., Any]


def spec(*, seq_len: int, num_bins: int, align: int = 4, layout: str = "pack", rows: int = 1) -> BatchSpec:
    return BatchSpec.model_validate(
        {"seq_len": seq_len // rows, "microbatches": num_bins, "align": align, "layout": layout, "rows": rows}
    )


def tensor(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return batch.column(name).to_numpy_ndarray()


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    """A random step: bins filled with aligned documents, some cut, masked or with loss spans."""
    align = draw(st.sampled_from([1, 2, 4, 16]))
    seq_len = align * draw(st.integers(2, 12))
    dp = draw(st.sampled_from([1, 2, 3]))
    num_bins = dp * draw(st.integers(1, 3))
    docs: list[dict[str, Any]] = []
    for b in range(num_bins):
        left = seq_len
        while left >= align and draw(st.booleans()):
            num = draw(st.integers(1, left))
            left -= -(-num // align) * align
            cuts = draw(st.sampled_from([(0, False), (0, False), (0, True), (64, True), (64, False)]))
            bounds = draw(st.none() | st.lists(st.integers(0, num + 2), max_size=6))
            spans = None if bounds is None else sorted(bounds)[: len(bounds) // 2 * 2]
            doc = {"bin": b, "num_tokens": num, "pos": len(docs), "source": draw(st.integers(0, 2))}
            doc |= {"first_token": cuts[0], "goes_on": cuts[1], "loss_spans": spans, "is_masked": draw(st.booleans())}
            docs.append(doc)
    order = draw(st.permutations(range(len(docs))))
    return {"docs": docs, "align": align, "seq_len": seq_len, "dp": dp, "num_bins": num_bins, "order": order}


def in_bin(docs: list[Any], b: int) -> list[Any]:
    return sorted((d for d in docs if d.bin == b), key=lambda d: (d.source, d.pos, d.first_token))


@given(case=steps())
def test_assemble_when_any_step_then_every_token_and_label_is_where_the_contract_says(
    case: dict[str, Any], make_doc: Make, make_plan: Make, make_pieces: Make
) -> None:
    docs = [make_doc(**d) for d in case["docs"]]
    plan = make_plan(docs, num_bins=case["num_bins"], seq_len=case["seq_len"], dp=case["dp"])
    pieces = make_pieces([docs[i] for i in case["order"]])
    batch_spec = spec(seq_len=case["seq_len"], num_bins=case["num_bins"], align=case["align"])
    for rank in range(case["dp"]):
        batch = assemble(plan, pieces, batch_spec, rank)
        for m in range(plan.bins_per_rank):
            tokens, labels, ends = [], [], [0]
            for d in in_bin(docs, rank * plan.bins_per_rank + m):
                pad = -d.num_tokens % case["align"]
                tokens += d.tokens[: d.num_tokens] + [0] * pad
                labels += d.labels + [-100] * pad
                ends.append(len(tokens))
            tail = case["seq_len"] - len(tokens)
            assert tensor(batch, "tokens")[m].tolist() == tokens + [0] * tail
            assert tensor(batch, "labels")[m].tolist() == labels + [-100] * tail
            assert batch.column("cu_seqlens")[m].as_py() == (ends if not tail else [*ends, case["seq_len"]])


@given(case=steps())
def test_assemble_when_all_ranks_are_built_then_nothing_is_lost_and_valid_labels_add_up(
    case: dict[str, Any], make_doc: Make, make_plan: Make, make_pieces: Make
) -> None:
    docs = [make_doc(**d) for d in case["docs"]]
    plan = make_plan(docs, num_bins=case["num_bins"], seq_len=case["seq_len"], dp=case["dp"])
    batch_spec = spec(seq_len=case["seq_len"], num_bins=case["num_bins"], align=case["align"])
    built = [assemble(plan, make_pieces(docs), batch_spec, rank) for rank in range(case["dp"])]
    sent = sorted(t for d in docs for t in d.tokens[: d.num_tokens])
    assert sorted(t for b in built for t in tensor(b, "tokens").ravel().tolist() if t) == sent
    assert sum(int((tensor(b, "labels") != -100).sum()) for b in built) == plan.global_valid_tokens
    assert {int(v) for b in built for v in b.column("global_valid_tokens").to_numpy()} == {plan.global_valid_tokens}
    rows = [row for b in built for rows in b.column("doc_row").to_pylist() for row in rows]
    assert sorted(rows) == sorted(1000 + d.pos for d in docs)
    for b in built:
        for ends in b.column("cu_seqlens").to_pylist():
            assert ends[0] == 0
            assert ends[-1] == case["seq_len"]
            assert all(a < b for a, b in itertools.pairwise(ends))


def test_assemble_when_layout_is_pad_then_each_document_has_a_row(
    make_doc: Make, make_plan: Make, make_pieces: Make
) -> None:
    docs = [make_doc(bin=0, num_tokens=5, pos=0), make_doc(bin=0, num_tokens=8, pos=1, goes_on=True)]
    plan = make_plan(docs, num_bins=1, seq_len=24)
    batch = assemble(plan, make_pieces(docs), spec(seq_len=24, num_bins=1, layout="pad", rows=3), 0)
    rows = tensor(batch, "tokens").reshape(3, 8)
    assert rows[0].tolist() == [*docs[0].tokens, 0, 0, 0]
    assert rows[1].tolist() == docs[1].tokens[:8]
    assert not rows[2].any()
    assert tensor(batch, "labels").reshape(3, 8)[1].tolist() == docs[1].tokens[1:]
    assert batch.column("cu_seqlens")[0].as_py() == [0, 8, 16, 24]


def test_assemble_when_a_bin_is_empty_then_it_holds_one_dummy_document(
    make_doc: Make, make_plan: Make, make_pieces: Make
) -> None:
    docs = [make_doc(bin=1, num_tokens=16, pos=0)]
    batch = assemble(make_plan(docs, num_bins=3, seq_len=16), make_pieces(docs), spec(seq_len=16, num_bins=3), 0)
    assert batch.column("cu_seqlens").to_pylist() == [[0, 16]] * 3
    assert batch.column("doc_num_tokens").to_pylist() == [[], [16], []]
    assert (tensor(batch, "labels")[[0, 2]] == -100).all()


def test_assemble_when_no_piece_at_all_then_the_schema_holds(make_plan: Make, make_pieces: Make) -> None:
    batch = assemble(make_plan([], num_bins=2, seq_len=16, dp=2), make_pieces([]), spec(seq_len=16, num_bins=2), 1)
    assert batch.schema.equals(batch_schema(seq_len=16), check_metadata=True)
    assert batch.num_rows == 1


def test_assemble_when_other_steps_and_ranks_are_in_the_pieces_then_they_are_left_alone(
    make_doc: Make, make_plan: Make, make_pieces: Make
) -> None:
    mine, other = make_doc(bin=1, num_tokens=6, pos=3), make_doc(bin=0, num_tokens=6, pos=4)
    plan = make_plan([mine, other], num_bins=2, seq_len=8, dp=2, step=5)
    table = pa.Table.from_batches([make_pieces([other], step=4), make_pieces([mine, other], step=5)])
    batch = assemble(plan.of_ranks({1}), table, spec(seq_len=8, num_bins=2), 1)
    assert tensor(batch, "tokens")[0].tolist() == [*mine.tokens, 0, 0]


def test_assemble_when_pieces_are_a_slice_then_offsets_are_honoured(
    make_doc: Make, make_plan: Make, make_pieces: Make
) -> None:
    docs = [make_doc(bin=0, num_tokens=4, pos=i, loss_spans=[1, 3 - i % 2]) for i in range(4)]
    plan = make_plan(docs[2:], num_bins=1, seq_len=8)
    batch = assemble(plan, make_pieces(docs).slice(2), spec(seq_len=8, num_bins=1), 0)
    assert tensor(batch, "tokens")[0].tolist() == docs[2].tokens + docs[3].tokens
    assert tensor(batch, "labels")[0].tolist() == docs[2].labels + docs[3].labels


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ([0], "1 of 2 pieces are missing, the first is bin 0, source 0, epoch 0, shard 0, block 0, pos 1"),
        ([0, 1, 2], "1 pieces were not planned, the first is bin 0, source 0, epoch 0, shard 0, block 0, pos 2"),
        ([0, 1, 1], "delivered more than once: bin 0, source 0, epoch 0, shard 0, block 0, pos 1"),
    ],
)
def test_assemble_when_pieces_differ_from_the_plan_then_the_error_names_one(
    sent: list[int], says: str, make_doc: Make, make_plan: Make, make_pieces: Make
) -> None:
    docs = [make_doc(bin=0, num_tokens=4, pos=i) for i in range(3)]
    plan = make_plan(docs[:2], num_bins=1, seq_len=16, step=7)
    with pytest.raises(InternalError, match=f"step 7: .*{says}"):
        assemble(plan, make_pieces([docs[i] for i in sent], step=7), spec(seq_len=16, num_bins=1), 0)


def test_assemble_when_a_cut_piece_has_another_length_then_the_error_says_so(
    make_doc: Make, make_plan: Make, make_pieces: Make
) -> None:
    plan = make_plan([make_doc(bin=0, num_tokens=8, pos=0, goes_on=True)], num_bins=1, seq_len=16)
    with pytest.raises(InternalError, match="must have 8 tokens, got 7"):
        assemble(plan, make_pieces([make_doc(bin=0, num_tokens=7, pos=0)]), spec(seq_len=16, num_bins=1), 0)


def test_assemble_when_a_bin_overflows_then_the_error_says_so(
    make_doc: Make, make_plan: Make, make_pieces: Make
) -> None:
    docs = [make_doc(bin=0, num_tokens=9, pos=i) for i in range(2)]
    with pytest.raises(InternalError, match="bin 0 must hold at most 20 tokens, got 24"):
        assemble(make_plan(docs, num_bins=1, seq_len=20), make_pieces(docs), spec(seq_len=20, num_bins=1), 0)


def test_assemble_when_dp_rank_is_out_of_range_then_it_is_refused(make_plan: Make, make_pieces: Make) -> None:
    plan = make_plan([], num_bins=2, seq_len=16, dp=2)
    with pytest.raises(BadRequestError, match=r"dp_rank must be in \[0, 2\), got 2"):
        assemble(plan, make_pieces([]), spec(seq_len=16, num_bins=2), 2)


def test_assemble_when_pieces_have_another_schema_then_they_are_refused(make_plan: Make) -> None:
    with pytest.raises(BadRequestError, match="schema PIECES"):
        assemble(make_plan([], num_bins=1, seq_len=16), pa.table({"step": [0]}), spec(seq_len=16, num_bins=1), 0)
