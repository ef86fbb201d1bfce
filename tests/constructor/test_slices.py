"""Slices of assembled microbatches: all ranks together have everything exactly once, whatever the mesh."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster.batch import Batch, to_batch
from loadmaster.tensors import Framework
from loadmaster_flight.constructor.assemble import assemble
from loadmaster_flight.constructor.slices import cut, cut_all, slice_schema
from loadmaster_flight.spec import BatchSpec, MeshSpec
from loadmaster_flight.wire.errors import MeshError
from loadmaster_flight.wire.schemas import batch_schema
from loadmaster_flight.wire.slicing import WHOLE, SlicePlace

MAX_RANKS = 64
ALIGN = 128
SHARED = ("cu_seqlens", "doc_source", "doc_row", "doc_num_tokens", "global_valid_tokens")


def meshes(max_ranks: int) -> Iterator[dict[str, int]]:
    """Every mesh of at most so many ranks."""
    for pp in range(1, max_ranks + 1):
        for dp in range(1, max_ranks // pp + 1):
            for cp in range(1, max_ranks // (pp * dp) + 1):
                for tp in range(1, max_ranks // (pp * dp * cp) + 1):
                    yield {"pp": pp, "dp": dp, "cp": cp, "tp": tp}


def places(cp: int, pp: int = 1) -> list[SlicePlace]:
    return [SlicePlace(cp=cp, cp_rank=c, pp=pp, pp_rank=p) for c in range(cp) for p in range(pp)]


def values(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return batch.column(name).to_numpy_ndarray()


@pytest.fixture(scope="module")
def whole(make_doc: type, make_plan: Callable[..., object], make_pieces: Callable[..., pa.RecordBatch]):
    """Makes the microbatches of one dp rank: documents of the given lengths a bin, in bins of `seq_len` tokens."""

    def make(lengths: list[list[int]], *, seq_len: int, align: int = ALIGN, **options: object) -> pa.RecordBatch:
        numbered = itertools.count()
        docs = [make_doc(bin=b, num_tokens=n, pos=next(numbered)) for b, ns in enumerate(lengths) for n in ns]
        spec = BatchSpec.model_validate({"seq_len": seq_len, "microbatches": len(lengths), "align": align} | options)
        plan = make_plan(docs, num_bins=len(lengths), seq_len=spec.capacity_at(0))
        return assemble(plan, make_pieces(docs), spec, 0)

    return make


def test_cut_when_the_mesh_is_any_of_up_to_64_ranks_then_the_union_is_the_microbatch_exactly_once(whole) -> None:
    """Ranks of one tp group read the same; of every other set of ranks, no two have the same token of a field."""
    sizes = sorted({mesh["cp"] for mesh in meshes(MAX_RANKS)})
    batches = {cp: whole([[3, 2 * cp + 1], [1]], seq_len=8 * cp, align=2 * cp) for cp in sizes}
    parts = {
        (cp, pp): cut_all(batches[cp], places(cp, pp), MeshSpec())
        for cp, pp in {(mesh["cp"], mesh["pp"]) for mesh in meshes(MAX_RANKS)}
    }
    for mesh in meshes(MAX_RANKS):
        batch = batches[mesh["cp"]]
        for name in ("tokens", "labels"):
            served: Counter[tuple[int, int, int]] = Counter()
            for coords in itertools.product(*(range(n) for n in mesh.values())):
                at = dict(zip(mesh, coords, strict=True))
                part = parts[mesh["cp"], mesh["pp"]][SlicePlace.of(mesh, at)]
                if name in part.schema.names and at["tp"] == 0:
                    served[at["dp"], at["cp"], at["pp"]] += 1
                    assert part.num_rows == batch.num_rows
            stage = 0 if name == "tokens" else mesh["pp"] - 1
            assert served == {(dp, cp, stage): 1 for dp in range(mesh["dp"]) for cp in range(mesh["cp"])}
    for (cp, pp), cut_parts in parts.items():
        for name in ("tokens", "labels"):
            rows = np.concatenate([values(p, name) for p in cut_parts.values() if name in p.schema.names], axis=1)
            assert rows.shape == (2, 8 * cp)
            assert (np.sort(rows, axis=1) == np.sort(values(batches[cp], name), axis=1)).all(), (cp, pp)


def reassembled(parts: list[Batch], name: str) -> np.ndarray:
    """A field of the whole microbatches, from those of all cp ranks: chunk by chunk, document by document."""
    cp, rows = len(parts), []
    for m, bounds in enumerate(parts[0].cu_seqlens):
        row, at = np.full(bounds[-1], -1, np.int64), 0
        for start, stop in itertools.pairwise(bounds.tolist()):
            chunk = (stop - start) // (2 * cp)
            for r, part in enumerate(parts):
                mine = getattr(part, name)[m]
                row[start + r * chunk :][:chunk] = mine[at : at + chunk]
                row[start + (2 * cp - 1 - r) * chunk :][:chunk] = mine[at + chunk : at + 2 * chunk]
            at += 2 * chunk
        rows.append(row)
    return np.stack(rows)


def read(record: pa.RecordBatch, *, num_rows: int = 1) -> Batch:
    return to_batch(record, step=0, source_names=["prose"], num_rows=num_rows, framework=Framework.NUMPY)


LENGTHS = st.lists(st.lists(st.integers(1, 300), max_size=6), min_size=1, max_size=3)


@given(lengths=LENGTHS, cp=st.sampled_from([1, 2, 4, 8]), layout=st.sampled_from(["pack", "pad"]))
def test_cut_when_cp_slices_are_reassembled_then_tokens_labels_and_positions_are_the_originals(
    whole, lengths: list[list[int]], cp: int, layout: str
) -> None:
    options = {"layout": "pad", "rows": 6, "seq_len": 304} if layout == "pad" else {"seq_len": 6 * 304}
    record = whole(lengths, align=16, **options)
    original = read(record)
    parts = [read(part) for part in cut_all(record, places(cp), MeshSpec()).values()]
    for name in ("tokens", "labels", "position_ids", "loss_mask"):
        assert (reassembled(parts, name) == getattr(original, name)).all()
    for part in parts:
        assert [ends.tolist() for ends in part.cu_seqlens] == [ends.tolist() for ends in original.cu_seqlens]
        assert part.max_seqlen == original.max_seqlen
        assert part.sample_ids == original.sample_ids
        assert (part.num_tokens, part.global_valid_tokens) == (original.num_tokens, original.global_valid_tokens)
    assert sum(int(part.loss_mask.sum()) for part in parts) == original.global_valid_tokens


@given(lengths=LENGTHS, cp=st.sampled_from([2, 4, 8]))
def test_cut_when_attention_is_causal_then_all_cp_ranks_have_equal_work(
    whole, lengths: list[list[int]], cp: int
) -> None:
    """A token attends to the tokens of its document up to itself."""
    record = whole(lengths, align=16, seq_len=6 * 304)
    parts = [read(part) for part in cut_all(record, places(cp), MeshSpec()).values()]
    assert len({tuple((part.position_ids + 1).sum(axis=1).tolist()) for part in parts}) == 1


def test_cut_when_a_slot_is_empty_then_its_dummy_document_is_cut_too(whole) -> None:
    record = whole([[20], []], seq_len=64, align=16)
    parts = [read(part) for part in cut_all(record, places(4), MeshSpec()).values()]
    assert [part.loss_mask[1].any() for part in parts] == [False] * 4
    assert [part.tokens.shape for part in parts] == [(2, 16)] * 4
    assert [len(part.documents[1]) for part in parts] == [0] * 4
    assert parts[0].cu_seqlens[1].tolist() == [0, 64]


def test_cut_when_the_layout_is_pad_then_a_slice_is_a_matrix_of_row_slices(whole) -> None:
    record = whole([[9, 16]], seq_len=16, align=8, layout="pad", rows=2)
    part = read(cut(record, SlicePlace(cp=2, cp_rank=0), MeshSpec()), num_rows=2)
    matrix = part.position_ids[0].reshape(2, -1)
    assert matrix.tolist() == [[0, 1, 2, 3, 12, 13, 14, 15]] * 2


@pytest.mark.parametrize(
    ("stage_fields", "tokens_on", "labels_on"),
    [
        ({}, {0}, {3}),
        ({"tokens": ["first", "last"]}, {0, 3}, {3}),
        ({"tokens": "all", "labels": [1, "last"]}, {0, 1, 2, 3}, {1, 3}),
    ],
)
def test_cut_when_stages_are_configured_then_they_get_those_fields(
    whole, stage_fields: dict[str, object], tokens_on: set[int], labels_on: set[int]
) -> None:
    mesh = MeshSpec.model_validate({"stage_fields": stage_fields})
    parts = cut_all(whole([[20]], seq_len=128), places(1, pp=4), mesh)
    has = {name: {p.pp_rank for p, part in parts.items() if name in part.schema.names} for name in ("tokens", "labels")}
    assert has == {"tokens": tokens_on, "labels": labels_on}
    assert all(set(SHARED) <= set(part.schema.names) for part in parts.values())


def test_cut_when_a_stage_gets_neither_then_what_it_can_derive_is_there(whole) -> None:
    batch = read(cut(whole([[20]], seq_len=128), SlicePlace(pp=3, pp_rank=1), MeshSpec()))
    assert (batch.tokens, batch.labels, batch.loss_mask) == (None, None, None)
    assert batch.position_ids.shape == (1, 128)
    (microbatch,) = batch.microbatches()
    assert (microbatch.tokens, microbatch.labels, microbatch.loss_mask) == (None, None, None)
    assert (microbatch.max_seqlen, microbatch.place.pp_rank) == (128, 1)


def test_cut_when_stages_share_a_cp_rank_then_they_share_its_memory(whole) -> None:
    mesh = MeshSpec.model_validate({"stage_fields": {"tokens": "all"}})
    parts = cut_all(whole([[20]], seq_len=128), places(2, pp=2), mesh)
    memory = {p: part.column("tokens").buffers()[-1].address for p, part in parts.items()}
    assert len(set(memory.values())) == 2
    assert memory[SlicePlace(cp=2, cp_rank=1, pp=2)] == memory[SlicePlace(cp=2, cp_rank=1, pp=2, pp_rank=1)]


@pytest.mark.parametrize("place", [WHOLE, SlicePlace(cp=4, cp_rank=2), SlicePlace(cp=2, pp=3, pp_rank=2)])
def test_schema_when_asked_before_a_batch_is_built_then_it_is_that_of_the_batch(whole, place: SlicePlace) -> None:
    part = cut(whole([[20]], seq_len=128), place, MeshSpec())
    assert part.schema.equals(slice_schema(batch_schema(seq_len=128), place, MeshSpec()), check_metadata=True)
    assert SlicePlace.from_metadata(part.schema.metadata) == place
    assert part.schema.metadata[b"loadmaster.seq_len"] == b"128"


def test_cut_when_cp_does_not_divide_align_then_the_rule_is_named(whole) -> None:
    with pytest.raises(MeshError, match=r"divisible by 2\*cp = 8, got 4: raise batch.align"):
        cut(whole([[3]], seq_len=16, align=4), SlicePlace(cp=4), MeshSpec())


def test_meshes_when_counted_then_all_ordered_sizes_are_there() -> None:
    found = list(meshes(8))
    assert len(found) == sum(1 for s in itertools.product(range(1, 9), repeat=4) if math.prod(s) <= 8)
