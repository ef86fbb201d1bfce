"""The Qwen2-VL adapter against transformers itself: its positions, and a tiny model's loss document by document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from loadmaster import adapters
from loadmaster.batch import Microbatch, to_batch
from loadmaster.mrope import mrope_positions
from loadmaster.tensors import Framework
from loadmaster_flight.constructor.slices import build_ranks, slot_at
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.schemas import MediaKind
from loadmaster_flight.wire.slicing import zigzag_index
from support.pictures import PLACEHOLDER, Doc, plan_of, sent, spec_of

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
IMAGE, VIDEO = MediaKind.IMAGE, MediaKind.VIDEO
SEQ_LEN = 128
IMAGE_ID, VIDEO_ID, VOCAB = 60, 61, 64
DOCS = [
    Doc(bin=0, pos=0, media=((IMAGE, (1, 4, 8)), (VIDEO, (3, 4, 2))), text=3),
    Doc(bin=0, pos=1, text=7),
    Doc(bin=0, pos=2, media=((IMAGE, (1, 2, 2)), (IMAGE, (1, 8, 4))), text=2),
]


def read(docs: list[Doc], *, cp: int = 1, cp_rank: int = 0, ranks: list[int] | None = None) -> Microbatch:
    mesh = {"pp": 1, "dp": 1, "cp": cp, "tp": 1}
    spec = spec_of(seq_len=SEQ_LEN, num_bins=1)
    plan = plan_of(docs, spec, dp=1, ranks=ranks)
    pieces = sent(plan, docs, spec, dp_ranks={0}, encoder_ranks={0})
    slot = slot_at(mesh, {"pp": 0, "dp": 0, "cp": cp_rank, "tp": 0})
    record = build_ranks(plan, pieces, spec, mesh, {0: slot})[0]
    batch = to_batch(record, step=0, source_names=["web"], num_rows=1, framework=Framework.TORCH)
    return next(batch.microbatches())


def small(ids: torch.Tensor) -> torch.Tensor:
    """Ids of the tiny vocabulary: placeholders as the model knows them, all else below."""
    kinds = ids - PLACEHOLDER
    text = torch.where(ids == -100, ids, ids % (IMAGE_ID - 1) + 1)
    return torch.where(kinds == IMAGE, IMAGE_ID, torch.where(kinds == VIDEO, VIDEO_ID, text))


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2VLConfig(
        text_config={
            "vocab_size": VOCAB,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
        },
        vision_config={
            "depth": 1,
            "embed_dim": 32,
            "hidden_size": 32,
            "num_heads": 2,
            "patch_size": 2,
            "temporal_patch_size": 1,
            "spatial_merge_size": 2,
        },
        image_token_id=IMAGE_ID,
        video_token_id=VIDEO_ID,
        attn_implementation="sdpa",
    )
    return transformers.Qwen2VLForConditionalGeneration(config).eval()


def rope_index(model: Any, doc: Doc) -> torch.Tensor:
    """Positions (3, tokens) of a document by itself, as the model counts them."""
    ids = small(torch.tensor([doc.tokens(2)]))
    types = (ids == IMAGE_ID).int() + 2 * (ids == VIDEO_ID).int()
    grids = {kind: torch.tensor([grid for k, grid in doc.media if k is kind]) for kind in (IMAGE, VIDEO)}
    found, _ = model.model.get_rope_index(ids, types, image_grid_thw=grids[IMAGE], video_grid_thw=grids[VIDEO])
    return found[:, 0]


def test_positions_when_documents_are_packed_then_each_has_those_of_the_model(model: Any) -> None:
    microbatch = read(DOCS)
    positions = adapters.qwen2_vl(microbatch)["position_ids"]
    assert positions.shape == (4, 1, SEQ_LEN)
    for doc, start in zip(DOCS, microbatch.cu_seqlens.tolist(), strict=False):
        want = rope_index(model, doc)
        assert positions[1:, 0, start : start + want.shape[1]].tolist() == want.tolist()
        assert positions[0, 0, start : start + want.shape[1]].tolist() == list(range(want.shape[1]))


def test_positions_when_a_rank_has_a_slice_then_they_are_those_of_its_tokens() -> None:
    microbatch = read(DOCS)
    whole = mrope_positions(microbatch.images, microbatch.cu_seqlens)
    for cp_rank in range(4):
        index = zigzag_index(microbatch.cu_seqlens.numpy(), 4, cp_rank)
        part = mrope_positions(microbatch.images, microbatch.cu_seqlens, cp=4, cp_rank=cp_rank)
        assert np.array_equal(part, whole[:, index])


def losses(model: Any, docs: list[Doc]) -> torch.Tensor:
    """Summed loss of a microbatch of some documents."""
    fields = adapters.qwen2_vl(read(docs))
    fields |= {name: small(fields[name]) for name in ("input_ids", "labels", "shift_labels")}
    fields = {name: value for name, value in fields.items() if not name.startswith(("cu_seq", "max_length"))}
    num = int((fields["shift_labels"] != -100).sum())
    with torch.no_grad():
        return model(**fields, use_cache=False, num_items_in_batch=torch.tensor(num)).loss * num


def test_loss_when_documents_are_packed_then_it_is_the_sum_of_theirs(model: Any) -> None:
    packed = losses(model, DOCS)
    single = [losses(model, [replace(doc, bin=0)]) for doc in DOCS]
    torch.testing.assert_close(packed, sum(single), rtol=1e-4, atol=1e-4)


def test_pixels_when_images_and_videos_are_mixed_then_each_kind_has_its_own(model: Any) -> None:
    fields = adapters.qwen2_vl(read(DOCS), dtype=torch.bfloat16)
    assert fields["image_grid_thw"].tolist() == [[1, 4, 8], [1, 2, 2], [1, 8, 4]]
    assert fields["video_grid_thw"].tolist() == [[3, 4, 2]]
    assert fields["pixel_values"].shape == (32 + 4 + 32, 12)
    assert fields["pixel_values_videos"].shape == (24, 12)
    assert fields["pixel_values"].dtype is torch.bfloat16


def test_pixels_when_there_is_a_dummy_alone_then_there_are_none(model: Any) -> None:
    fields = adapters.qwen2_vl(read(DOCS[1:2]))
    assert "pixel_values" not in fields
    assert "pixel_values_videos" not in fields
    assert fields["position_ids"][1:, 0].tolist() == fields["position_ids"][:1, 0].tolist() * 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: replace(m, images=None), "needs images: the run has no media.vision"),
        (lambda _: read(DOCS, ranks=[0]), "ranks encode for each other: use encoder"),
    ],
)
def test_qwen2_vl_when_it_cannot_encode_then_the_error_says_why(
    change: Callable[[Microbatch], Microbatch], says: str
) -> None:
    with pytest.raises(BadRequestError, match=says):
        adapters.qwen2_vl(change(read(DOCS)))
