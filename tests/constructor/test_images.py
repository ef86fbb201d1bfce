"""Images and audio in batches: every one exactly once, byte for byte, whoever encodes it."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster.batch import Batch, to_batch
from loadmaster.tensors import Framework
from loadmaster_flight.constructor.modalities import run_schema
from loadmaster_flight.constructor.slices import build_ranks, rank_schema, slot_at
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.errors import InternalError, MeshError
from loadmaster_flight.wire.schemas import AXES, NO_DP, PIECES, MediaKind
from loadmaster_flight.wire.slicing import zigzag_index
from loadmaster_flight.wire.step_plan import StepPlan, Units
from support.pictures import PLACEHOLDER, Doc, masked, plan_of, sent, spec_of

IMAGE, VIDEO, AUDIO = MediaKind.IMAGE, MediaKind.VIDEO, MediaKind.AUDIO
SEQ_LEN = 256
Mesh = dict[str, int]
PICTURE = Doc(bin=0, pos=0, media=((IMAGE, (1, 4, 2)),))


def coords_of(mesh: Mesh) -> dict[int, Mesh]:
    places = itertools.product(*(range(size) for size in mesh.values()))
    return {rank: dict(zip(mesh, place, strict=True)) for rank, place in enumerate(places)}


def build(plan: StepPlan, docs: Sequence[Doc], spec: RunSpec, mesh: Mesh, *, hosts: int = 1) -> dict[int, Batch]:
    """Every rank's batch. dp ranks are dealt to constructors, each of which asks loaders for what it serves."""
    batches: dict[int, Batch] = {}
    for host in range(hosts):
        mine = {rank: at for rank, at in coords_of(mesh).items() if at["dp"] % hosts == host}
        slot_of = {rank: slot_at(mesh, at) for rank, at in mine.items()}
        dp_ranks = {dp for dp, _ in slot_of.values()}
        pieces = sent(plan, docs, spec, dp_ranks=dp_ranks, encoder_ranks=mine if plan.is_hybrid else ())
        records = build_ranks(plan.of_ranks(dp_ranks, mine), pieces, spec, mesh, slot_of)
        batches |= {rank: read(record) for rank, record in records.items()}
    return batches


def read(record: pa.RecordBatch) -> Batch:
    return to_batch(record, step=0, source_names=["web"], num_rows=1, framework=Framework.NUMPY)


GRIDS = st.one_of(
    st.tuples(st.just(IMAGE), st.tuples(st.just(1), st.sampled_from([2, 4, 6]), st.sampled_from([2, 4]))),
    st.tuples(st.just(VIDEO), st.tuples(st.integers(1, 3), st.sampled_from([2, 4]), st.just(2))),
    st.tuples(st.just(AUDIO), st.tuples(st.integers(1, 6), st.just(1), st.just(1))),
)


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    """A mesh, a spec and the documents of a step; some bins have no picture, some documents are text alone."""
    mesh = {axis: draw(st.sampled_from([1, 2])) for axis in ("pp", "dp", "cp", "tp")}
    num_bins = mesh["dp"] * draw(st.integers(1, 2))
    cap = draw(st.sampled_from([{}, {"max_patches": 8, "over_max": "shard"}]))
    dtype = draw(st.sampled_from(["uint8", "float16", "bfloat16"]))
    spec = spec_of(seq_len=SEQ_LEN, num_bins=num_bins, dtype=dtype, **cap)
    docs, places = [], itertools.count()
    for b in range(num_bins):
        for _ in range(draw(st.integers(0, 3))):
            media = tuple(draw(st.lists(GRIDS, max_size=3)))
            docs.append(Doc(bin=b, pos=next(places), media=media, text=draw(st.integers(1, 4))))
    return {"mesh": mesh, "spec": spec, "docs": draw(st.permutations(docs)), "hosts": draw(st.integers(1, mesh["dp"]))}


def documents_in(case: dict[str, Any], b: int) -> list[Doc]:
    return sorted((d for d in case["docs"] if d.bin == b), key=lambda d: (d.source, d.pos))


@given(case=steps())
def test_build_ranks_when_images_go_with_documents_then_each_rank_decodes_what_its_documents_have(
    case: dict[str, Any],
) -> None:
    spec, mesh = case["spec"], case["mesh"]
    plan = plan_of(case["docs"], spec, dp=mesh["dp"])
    for rank, batch in build(plan, case["docs"], spec, mesh, hosts=case["hosts"]).items():
        at = coords_of(mesh)[rank]
        if at["pp"] > 0:
            assert batch.images == [None] * len(batch)
            assert batch.audio == [None] * len(batch)
            continue
        for m, part in enumerate(batch.microbatches()):
            docs = documents_in(case, at["dp"] * plan.bins_per_rank + m)
            pixels = [unit for doc in docs for unit in doc.pixels(spec.media.vision)]
            images, clips = part.images, part.audio
            assert images.is_dummy == (not pixels)
            if pixels:
                assert raw(images.pixel_values) == b"".join(unit.tobytes() for unit in pixels)
                assert images.patch_offsets[-1] == len(images.pixel_values)
                assert images.encoder_grid_thw is images.grid_thw
            found = zip(images.kinds, images.grid_thw, images.doc, strict=True)
            told = [(kind, grid, d) for d, doc in enumerate(docs) for kind, grid in doc.media if kind != AUDIO]
            assert [(k, tuple(g), d) for k, g, d in found] == (told or [(IMAGE, (1, 2, 2), -1)])
            assert raw(clips.values) == b"".join(doc.audio().tobytes() for doc in docs)
            assert clips.frame_offsets[-1] == len(clips.values)


@given(case=steps())
def test_build_ranks_when_placeholders_are_sought_then_all_cp_ranks_together_have_each_where_told(
    case: dict[str, Any],
) -> None:
    """Tokens of cp ranks put together again: at the places that images and audio name there are placeholders only."""
    spec, mesh = case["spec"], case["mesh"]
    plan = plan_of(case["docs"], spec, dp=mesh["dp"])
    batches = build(plan, case["docs"], spec, mesh)
    for dp, m in itertools.product(range(mesh["dp"]), range(plan.bins_per_rank)):
        whole = np.full(SEQ_LEN, -1)
        for rank, at in coords_of(mesh).items():
            if (at["dp"], at["pp"], at["tp"]) == (dp, 0, 0):
                part = list(batches[rank].microbatches())[m]
                whole[zigzag_index(part.cu_seqlens, mesh["cp"], at["cp"])] = part.tokens
        assert (whole >= 0).all()
        spans = part.images.own_tokens + part.audio.own_tokens
        places = [start + i for start, count in spans for i in range(count)]
        assert Counter(places) == Counter(np.flatnonzero(whole >= PLACEHOLDER).tolist())


@given(case=steps(), seed=st.integers(0, 99))
def test_build_ranks_when_ranks_of_their_own_encode_then_all_of_them_have_each_unit_exactly_once(
    case: dict[str, Any], seed: int
) -> None:
    spec, mesh = case["spec"], case["mesh"]
    world = len(coords_of(mesh))
    ranks = np.random.default_rng(seed).integers(0, world, 7).tolist()
    plan = plan_of(case["docs"], spec, dp=mesh["dp"], ranks=ranks)
    batches = build(plan, case["docs"], spec, mesh, hosts=case["hosts"])
    encoded = {(rank, m): units_of(images) for rank, batch in batches.items() for m, images in enumerate(batch.images)}
    assert all(encoded.values()), "every rank encodes something of every microbatch, if only a dummy"
    for dp, m in itertools.product(range(mesh["dp"]), range(plan.bins_per_rank)):
        (*_, own) = (batches[r].images[m] for r, at in coords_of(mesh).items() if (at["dp"], at["pp"]) == (dp, 0))
        docs = documents_in(case, dp * plan.bins_per_rank + m)
        content = [unit.tobytes() for doc in docs for unit in doc.pixels(spec.media.vision)]
        grids = [unit for doc in docs for unit in doc.units(spec.media.vision)]
        theirs = {rank: iter([u for u in encoded[rank, m] if u[0] == dp]) for rank in range(world)}
        assert [next(theirs[rank]) for rank in own.unit_rank.tolist()] == [
            (dp, grid, data) for grid, data in zip(grids, content, strict=True)
        ]
        assert [list(rest) for rest in theirs.values()] == [[]] * world
        assert own.unit_tokens == [int(np.prod(grid)) // 4 for grid in grids]
    for units in encoded.values():
        if any(unit[0] == NO_DP for unit in units):
            assert units == [(NO_DP, (1, 2, 2), bytes(4 * spec.media.vision.patch_dim * spec.media.vision.item_bytes))]


def units_of(images: Any) -> list[tuple[int, tuple[int, int, int], bytes]]:
    """dp rank, grid and bytes of each unit that a rank encodes."""
    bounds = itertools.pairwise(images.patch_offsets.tolist())
    parts = [raw(images.pixel_values[a:b]) for a, b in bounds]
    return list(zip(images.encoder_dp.tolist(), map(tuple, images.encoder_grid_thw.tolist()), parts, strict=True))


def raw(values: np.ndarray) -> bytes:
    return np.ascontiguousarray(values).tobytes()


def one(docs: list[Doc], *, ranks: list[int] | None = None, mesh: Mesh | None = None, **options: Any) -> Batch:
    sizes = {"pp": 1, "dp": 1, "cp": 1, "tp": 1} | (mesh or {})
    spec = spec_of(seq_len=SEQ_LEN, num_bins=2, **options)
    return build(plan_of(docs, spec, dp=1, ranks=ranks), docs, spec, sizes)[0]


@pytest.mark.parametrize("ranks", [None, [0]])
def test_build_ranks_when_a_document_is_masked_then_its_pixels_stay_and_are_zeros_where_none_came(
    ranks: list[int] | None,
) -> None:
    docs = [masked(PICTURE), Doc(bin=0, pos=1, media=PICTURE.media)]
    batch = one(docs, ranks=ranks)
    (first,) = docs[0].pixels(spec_of(seq_len=SEQ_LEN, num_bins=1).media.vision)
    assert raw(batch.images[0].pixel_values[:8]) == first.tobytes()
    assert (batch.labels[0][:8] == -100).all()

    spec = spec_of(seq_len=SEQ_LEN, num_bins=2)
    plan = plan_of(docs, spec, dp=1, ranks=ranks)
    rows = sent(plan, docs, spec, dp_ranks={0}, encoder_ranks={0}).to_pylist()
    rows[0] |= {"pixels": None, "media_units": []}
    pieces = pa.Table.from_pylist(rows, schema=PIECES)
    mesh = {"pp": 1, "dp": 1, "cp": 1, "tp": 1}
    slot = slot_at(mesh, dict.fromkeys(mesh, 0))
    images = read(build_ranks(plan, pieces, spec, mesh, {0: slot})[0]).images[0]
    assert not images.pixel_values[:8].any()
    assert images.pixel_values[8:].all()


def test_build_ranks_when_pixels_are_assembled_then_they_are_copied_once() -> None:
    """Memory taken while a step of ten documents in ten chunks is built: the pixels once, and little else."""
    docs = [Doc(bin=i % 2, pos=i, media=((IMAGE, (1, 128, 100)),)) for i in range(10)]
    spec = spec_of(seq_len=5 * 3264, num_bins=2, patch=8, max_pixels=1 << 20)
    plan = plan_of(docs, spec, dp=1)
    pieces = sent(plan, docs, spec, dp_ranks={0}, encoder_ranks=())
    size = sum(len(value.as_py()) for value in pieces.column("pixels"))
    mesh = {"pp": 2, "dp": 1, "cp": 2, "tp": 2}
    slot_of = {rank: slot_at(mesh, at) for rank, at in coords_of(mesh).items()}
    arrow_before = pa.total_allocated_bytes()
    tracemalloc.start()
    batches = build_ranks(plan, pieces, spec, mesh, slot_of)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < peak < 1.2 * size
    assert pa.total_allocated_bytes() - arrow_before < 0.1 * size
    addresses = {
        batch.column("pixel_values").values.values.buffers()[1].address
        for batch in batches.values()
        if "pixel_values" in batch.schema.names
    }
    assert len(addresses) == 1, "all ranks of a dp rank share one copy"


@pytest.mark.parametrize(
    ("stage_fields", "hybrid", "pixels_on", "grids_on"),
    [
        ({}, False, {0}, {0}),
        ({"images": "all"}, False, {0}, {0, 1, 2}),
        ({"pixel_values": "last"}, False, {2}, {0}),
        ({}, True, {0, 1, 2}, {0}),
        ({"pixel_values": "first"}, True, {0, 1, 2}, {0}),
    ],
)
def test_build_ranks_when_stages_are_configured_then_they_get_those_fields(
    stage_fields: dict[str, Any], hybrid: bool, pixels_on: set[int], grids_on: set[int]
) -> None:
    spec = spec_of(seq_len=SEQ_LEN, num_bins=1, mesh={"stage_fields": stage_fields})
    mesh = {"pp": 3, "dp": 1, "cp": 1, "tp": 1}
    batches = build(plan_of([PICTURE], spec, dp=1, ranks=[2] if hybrid else None), [PICTURE], spec, mesh)
    names = {rank: set(batch.record.schema.names) for rank, batch in batches.items()}
    assert {rank for rank in names if "pixel_values" in names[rank]} == pixels_on
    assert {rank for rank in names if {"grid_thw", "image_kind", "image_doc", "image_token_start"} <= names[rank]} == (
        grids_on
    )
    assert {rank for rank in names if {"audio_values", "audio_frames"} <= names[rank]} == {0}
    assert {rank for rank in names if "encoder_dp" in names[rank]} == (pixels_on if hybrid else set())


@pytest.mark.parametrize("hybrid", [False, True])
def test_schema_when_asked_before_a_step_is_built_then_it_is_that_of_the_batch(hybrid: bool) -> None:
    spec = spec_of(seq_len=SEQ_LEN, num_bins=1)
    mesh = {"pp": 2, "dp": 1, "cp": 2, "tp": 2}
    plan = plan_of([PICTURE], spec, dp=1, ranks=[1] if hybrid else None)
    for rank, batch in build(plan, [PICTURE], spec, mesh).items():
        place = slot_at(mesh, coords_of(mesh)[rank])[1]
        whole = run_schema(spec, seq_len=SEQ_LEN, is_hybrid=hybrid)
        expected = rank_schema(whole, place, spec.mesh, rank=rank, sizes=mesh)
        assert batch.record.schema.equals(expected, check_metadata=True)


def test_schema_when_it_has_media_then_every_field_declares_a_known_axis() -> None:
    schema = run_schema(spec_of(seq_len=SEQ_LEN, num_bins=1), seq_len=SEQ_LEN, is_hybrid=True)
    assert {field.metadata[b"axis"].decode() for field in schema} == set(AXES)


def test_build_ranks_when_no_unit_is_in_a_slice_of_a_hybrid_plan_then_it_is_still_hybrid() -> None:
    spec = spec_of(seq_len=SEQ_LEN, num_bins=2)
    plan = plan_of([PICTURE], spec, dp=2, ranks=[0])
    part = plan.of_ranks({1}, {1})
    assert (len(part.units), part.is_hybrid) == (0, True)
    batch = build(plan, [PICTURE], spec, {"pp": 1, "dp": 2, "cp": 1, "tp": 1}, hosts=2)[1]
    assert batch.images[0].is_hybrid
    assert batch.images[0].is_dummy


def test_build_ranks_when_tp_ranks_hand_on_batches_then_a_hybrid_step_is_refused() -> None:
    spec = spec_of(seq_len=SEQ_LEN, num_bins=1, mesh={"tp_mode": "broadcast"})
    plan = plan_of([PICTURE], spec, dp=1, ranks=[1])
    with pytest.raises(MeshError, match="tp_mode must be read where every rank encodes images, got broadcast"):
        build(plan, [PICTURE], spec, {"pp": 1, "dp": 1, "cp": 1, "tp": 2})


@pytest.mark.parametrize(
    ("ranks", "change", "says"),
    [
        (None, {"pixels": b"x" * 95}, "pixels of the piece bin 0, .*pos 0, first_token 0 must have 96 bytes, got 95"),
        (None, {"pixels": None}, "must have 96 bytes, got none"),
        (None, {"audio": b""}, "audio of the piece .* must have 32 bytes, got 0"),
        ([0], {"pixels": b"x" * 95}, "must have 96 bytes, got 95"),
        ([0], {"pixels": b"", "media_units": []}, "unit 0 of the piece bin 0, .* has no pixels"),
        ([0], {"media_grid": [[2, 4, 2], [2, 1, 1]]}, "must have 1 units of images, got 2"),
        (
            [0],
            dict.fromkeys(("media_kind", "media_grid", "media_start", "media_units", "pixels", "audio")),
            "came without its images",
        ),
    ],
)
def test_build_ranks_when_media_are_not_those_of_the_plan_then_the_error_names_the_piece(
    ranks: list[int] | None, change: dict[str, Any], says: str
) -> None:
    docs = [Doc(bin=0, pos=0, media=((IMAGE if "units" not in says else VIDEO, (1, 4, 2)), (AUDIO, (2, 1, 1))))]
    spec = spec_of(seq_len=SEQ_LEN, num_bins=1)
    plan = plan_of(docs, spec, dp=1, ranks=ranks)
    (row,) = sent(plan, docs, spec, dp_ranks={0}, encoder_ranks={0}).to_pylist()
    pieces = pa.Table.from_pylist([row | change], schema=PIECES)
    mesh = {"pp": 1, "dp": 1, "cp": 1, "tp": 1}
    with pytest.raises(InternalError, match=f"step 0: .*{says}"):
        build_ranks(plan, pieces, spec, mesh, {0: slot_at(mesh, dict.fromkeys(mesh, 0))})


def test_plan_when_units_are_there_then_it_is_hybrid_and_its_slices_are() -> None:
    spec = spec_of(seq_len=SEQ_LEN, num_bins=2)
    plan = replace(plan_of([PICTURE], spec, dp=2, ranks=[0]), is_hybrid=False)
    assert plan.is_hybrid
    assert not plan_of([PICTURE], spec, dp=2).is_hybrid
    assert replace(plan, units=Units.empty(), is_hybrid=False).digest == plan.digest
