"""Images and audio of a batch as numpy and as torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import loadmaster
from loadmaster import vision
from loadmaster.batch import Batch, to_batch
from loadmaster.digest import record_digest
from loadmaster.tensors import Framework
from loadmaster_flight.constructor.slices import build_ranks, slot_at
from loadmaster_flight.wire.schemas import MediaKind
from support.pictures import HOP, Doc, plan_of, sent, spec_of

IMAGE, VIDEO, AUDIO = MediaKind.IMAGE, MediaKind.VIDEO, MediaKind.AUDIO
MESH = {"pp": 1, "dp": 1, "cp": 1, "tp": 1}
DOCS = [
    Doc(bin=0, pos=0, media=((IMAGE, (1, 4, 2)), (AUDIO, (3, 1, 1)))),
    Doc(bin=0, pos=1, media=((VIDEO, (2, 2, 2)), (AUDIO, (1, 1, 1)))),
    Doc(bin=1, pos=2),
]


def record_of(docs: list[Doc] = DOCS, *, ranks: list[int] | None = None, **options: Any) -> pa.RecordBatch:
    spec = spec_of(seq_len=64, num_bins=2, **options)
    plan = plan_of(docs, spec, dp=1, ranks=ranks)
    pieces = sent(plan, docs, spec, dp_ranks={0}, encoder_ranks={0} if ranks else ())
    return build_ranks(plan, pieces, spec, MESH, {0: slot_at(MESH, dict.fromkeys(MESH, 0))})[0]


def over_the_wire(record: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, record.schema) as writer:
        writer.write_batch(record)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    def make(framework: Framework = Framework.TORCH, **options: Any) -> Batch:
        record = over_the_wire(record_of(**options))
        return to_batch(record, step=0, source_names=["web"], num_rows=1, framework=framework)

    return make


def test_images_when_torch_then_fields_are_those_of_the_documents(make_batch: Callable[..., Batch]) -> None:
    first, second = make_batch().images
    assert first.grid_thw.tolist() == [[1, 4, 2], [2, 2, 2]]
    assert first.kinds.tolist() == [IMAGE, VIDEO]
    assert first.doc.tolist() == [0, 1]
    assert first.token_start.tolist() == [3, 19]  # text of 3, document 1 begins at 16
    assert first.patch_offsets.tolist() == [0, 8, 16]
    assert (first.encoder_tokens, first.own_tokens) == ([2, 2], [(3, 2), (19, 2)])
    assert first.grid_thw.dtype is torch.int64
    assert (first.pixel_values.dtype, first.pixel_values.shape) == (torch.uint8, (16, 12))
    assert (first.is_dummy, first.is_hybrid) == (False, False)
    assert (second.is_dummy, second.doc.tolist(), second.own_tokens) == (True, [-1], [])
    assert second.pixel_values.shape == (4, 12)
    assert not second.pixel_values.any()


def test_audio_when_there_are_clips_then_frames_and_places_are_told(make_batch: Callable[..., Batch]) -> None:
    first, second = make_batch().audio
    assert (first.values.dtype, first.values.shape) == (torch.int16, (4, HOP))
    assert first.num_frames.tolist() == [3, 1]
    assert first.frame_offsets.tolist() == [0, 3, 4]
    assert first.doc.tolist() == [0, 1]
    assert first.own_tokens == [(8, 3), (24, 1)]
    assert first.values.tolist() == np.concatenate([DOCS[0].audio(), DOCS[1].audio()]).tolist()
    assert (second.values.shape, second.own_tokens) == ((0, HOP), [])


def test_images_when_numpy_then_small_fields_are_int32_and_pixels_are_read_only(
    make_batch: Callable[..., Batch],
) -> None:
    images = make_batch(Framework.NUMPY).images[0]
    assert (images.grid_thw.dtype, images.doc.dtype, images.patch_offsets.dtype) == (np.int32,) * 3
    assert not images.pixel_values.flags.writeable


@pytest.mark.parametrize("framework", [Framework.NUMPY, Framework.TORCH])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16"])
def test_pixels_when_received_then_they_are_a_view_of_the_batch(
    framework: Framework, dtype: str, make_batch: Callable[..., Batch]
) -> None:
    batch = make_batch(framework, dtype=dtype)
    buffer = batch.record.column("pixel_values").values.values.buffers()[1]
    pixels = batch.images[0].pixel_values
    address = pixels.data_ptr() if framework is Framework.TORCH else pixels.ctypes.data
    assert address == buffer.address
    want = {
        (Framework.TORCH, "bfloat16"): torch.bfloat16,
        (Framework.TORCH, "float16"): torch.float16,
        (Framework.TORCH, "uint8"): torch.uint8,
        (Framework.NUMPY, "bfloat16"): np.uint16,
    }
    assert pixels.dtype == want.get((framework, dtype), dtype)


def test_pixels_when_the_batch_is_gone_then_they_stay(make_batch: Callable[..., Batch]) -> None:
    pixels = make_batch().images[0].pixel_values
    spec = spec_of(seq_len=64, num_bins=2)
    want = np.concatenate([unit for doc in DOCS for unit in doc.pixels(spec.media.vision)])
    junk = [bytearray(1 << 20) for _ in range(8)]
    assert np.array_equal(pixels.numpy(), want), len(junk)


def test_images_when_a_microbatch_is_sliced_out_then_offsets_are_honoured() -> None:
    docs = [Doc(bin=b, pos=b, media=((IMAGE, (1, 2, 2 + 2 * b)),)) for b in range(2)]
    record = over_the_wire(record_of(docs))
    whole, part = (
        to_batch(r, step=0, source_names=["web"], num_rows=1, framework=Framework.NUMPY)
        for r in (record, record.slice(1))
    )
    assert np.array_equal(part.images[0].pixel_values, whole.images[1].pixel_values)
    assert part.images[0].grid_thw.tolist() == [[1, 2, 4]]
    assert record_digest(record.slice(1)) == record_digest(record_of(docs).slice(1))


def test_digest_when_a_pixel_differs_then_it_does() -> None:
    other = [Doc(bin=0, pos=7, media=DOCS[0].media, text=3), *DOCS[1:]]
    assert record_digest(record_of()) == record_digest(over_the_wire(record_of()))
    names = ["pixel_values"]
    changed = record_digest(record_of(other).select(names))
    assert changed != record_digest(record_of().select(names))


def test_frames_when_the_layout_is_frames_then_pixels_are_pictures(make_batch: Callable[..., Batch]) -> None:
    docs = [Doc(bin=0, pos=0, media=((VIDEO, (2, 1, 1)), (IMAGE, (1, 1, 1))))]
    images = make_batch(docs=docs, layout="frames", size=[4, 6], tokens_per_frame=1).images[0]
    assert images.frames.shape == (3, 3, 4, 6)
    assert images.encoder_tokens == [2, 1]
    assert make_batch().images[0].frames is None


def test_images_when_ranks_of_their_own_encode_then_the_seat_and_receivers_are_told(
    make_batch: Callable[..., Batch],
) -> None:
    images = make_batch(ranks=[0]).images[0]
    assert (images.seat.rank, images.seat.mesh) == (0, MESH)
    assert images.encoder_grid_thw.tolist() == [[1, 4, 2], [1, 2, 2], [1, 2, 2]]
    assert images.encoder_dp.tolist() == [0, 0, 0]
    assert images.unit_rank.tolist() == [0, 0, 0]
    assert images.patch_offsets.tolist() == [0, 8, 12, 16]
    assert make_batch(ranks=[0]).images[1].is_dummy


@pytest.mark.parametrize("framework", [Framework.NUMPY, Framework.TORCH])
def test_normalise_when_pixels_are_bytes_then_each_colour_has_its_mean_and_deviation(
    framework: Framework, make_batch: Callable[..., Batch]
) -> None:
    images = make_batch(framework).images[0]
    got = np.asarray(vision.normalise(images.pixel_values, images.mean, images.std))
    pixels = np.asarray(images.pixel_values).reshape(-1, 3, 4) / 255
    want = (pixels - np.array(images.mean)[:, None]) / np.array(images.std)[:, None]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want.reshape(-1, 12), rtol=1e-5, atol=1e-6)
    assert images.pixel_values.max() > 1, "the received pixels stay"


def test_normalise_when_pixels_are_normalised_already_then_they_are_cast_only(
    make_batch: Callable[..., Batch],
) -> None:
    images = make_batch(dtype="float16").images[0]
    got = vision.normalise(images.pixel_values, images.mean, images.std, torch.bfloat16)
    assert torch.equal(got, images.pixel_values.to(torch.bfloat16))
    assert vision.normalise(images.pixel_values, images.mean, images.std, torch.float16).data_ptr() != (
        images.pixel_values.data_ptr()
    )


def test_normalise_when_a_dtype_is_asked_for_then_the_result_has_it(make_batch: Callable[..., Batch]) -> None:
    images = make_batch().images[0]
    assert vision.normalise(images.pixel_values, images.mean, images.std, torch.bfloat16).dtype is torch.bfloat16


def test_public_names_when_listed_then_media_are_among_them() -> None:
    assert {"Clips", "Images", "encoder", "vision"} <= set(loadmaster.__all__)
