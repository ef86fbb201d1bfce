"""Adapters against what torchtitan and Megatron-LM do with their fields, re-derived here; numpy as well as torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loadmaster import adapters
from loadmaster.batch import Microbatch
from loadmaster.tensors import Framework
from loadmaster_flight.constructor.slices import cut
from loadmaster_flight.spec import MeshSpec
from loadmaster_flight.wire.errors import BadRequestError, MeshError
from loadmaster_flight.wire.slicing import WHOLE, SlicePlace
from support.packed import Piece, packed_batch, packed_record

ADAPTERS = {"transformers": adapters.transformers, "torchtitan": adapters.torchtitan, "megatron": adapters.megatron}
PIECES = [Piece([5, 6, 7]), Piece([8, 9, 10, 11, 12], goes_on=13), Piece([14])]


def microbatch(
    pieces: list[Piece] = PIECES,
    *,
    seq_len: int = 32,
    align: int = 8,
    place: SlicePlace = WHOLE,
    framework: Framework = Framework.TORCH,
) -> Microbatch:
    record = cut(packed_record([pieces], seq_len=seq_len, align=align), place, MeshSpec())
    return next(packed_batch(record, framework=framework).microbatches())


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_adapter_when_given_numpy_then_the_same_tensors(name: str) -> None:
    of_torch = ADAPTERS[name](microbatch())
    of_numpy = ADAPTERS[name](microbatch(framework=Framework.NUMPY))
    assert of_torch.keys() == of_numpy.keys()
    for key, value in of_torch.items():
        other = of_numpy[key]
        assert type(value) is type(other), key
        if isinstance(value, torch.Tensor):
            assert value.dtype == other.dtype, key
            assert torch.equal(value, other), key
        else:
            assert value == other, key


def varlen_metadata(positions_T: torch.Tensor) -> tuple[list[int], int]:
    """torchtitan's `create_varlen_metadata_for_document`: a document begins where the position is 0."""
    starts = (positions_T == 0).nonzero(as_tuple=True)[0].to(torch.int32)
    bounds = torch.cat([starts, torch.tensor([len(positions_T)], dtype=torch.int32)])
    return bounds.tolist(), int(bounds.diff().max())


@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6), align=st.sampled_from([1, 2, 8]), tail=st.booleans()
)
def test_torchtitan_when_it_looks_for_documents_then_it_finds_the_segments(
    lengths: list[int], align: int, tail: bool
) -> None:
    pieces = [Piece(list(range(1, n + 1))) for n in lengths]
    seq_len = sum(-(-n // align) * align for n in lengths) + 8 * tail
    given_batch = microbatch(pieces, seq_len=seq_len, align=align)
    fields = adapters.torchtitan(given_batch)
    bounds, longest = varlen_metadata(fields["positions"])
    assert bounds == given_batch.cu_seqlens.tolist()
    assert longest == given_batch.max_seqlen
    assert {value.shape for value in fields.values()} == {(seq_len,)}
    assert {value.dtype for value in fields.values()} == {torch.int64}


def test_torchtitan_when_its_loss_is_taken_then_it_counts_the_labels_inside_documents() -> None:
    """Its cross_entropy_loss: sum over flat labels, -100 ignored."""
    fields = adapters.torchtitan(microbatch())
    logits = torch.randn(32, 20, generator=torch.Generator().manual_seed(0))
    loss = torch.nn.functional.cross_entropy(logits, fields["labels"], reduction="sum", ignore_index=-100)
    targets = {0: 6, 1: 7, 8: 9, 9: 10, 10: 11, 11: 12, 12: 13}
    by_hand = -sum(logits[at].log_softmax(0)[label] for at, label in targets.items())
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-5)


def megatron_loss(fields: dict[str, Any], losses_T: torch.Tensor) -> torch.Tensor:
    """Megatron-LM's `loss_func`: per-token losses times loss_mask, summed."""
    return torch.sum(losses_T.view(-1).float() * fields["loss_mask"].view(-1).float())


def sliced_by_megatron(values_1T: torch.Tensor, cu_seqlens_1E: torch.Tensor, cp: int, cp_rank: int) -> torch.Tensor:
    """The slice of a packed sequence: of each document, seen as 2*cp chunks, the chunks r and 2*cp - 1 - r."""
    chosen = torch.tensor([cp_rank, 2 * cp - cp_rank - 1])
    documents = [values_1T[:, a:b] for a, b in itertools.pairwise(cu_seqlens_1E[0].tolist())]
    chunked = [document.view(1, 2 * cp, -1).index_select(1, chosen).view(1, -1) for document in documents]
    return torch.cat(chunked, dim=1)


@pytest.mark.parametrize(("cp", "cp_rank"), [(1, 0), (2, 0), (2, 1), (4, 2)])
def test_megatron_when_cut_for_cp_then_as_megatron_would_cut_the_whole(cp: int, cp_rank: int) -> None:
    whole = adapters.megatron(microbatch())
    part = adapters.megatron(microbatch(place=SlicePlace(cp=cp, cp_rank=cp_rank)))
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        expected = sliced_by_megatron(whole[name], whole["cu_seqlens_padded"], cp, cp_rank)
        assert torch.equal(part[name], expected), name
        assert part[name].dtype == whole[name].dtype
    for name in ("cu_seqlens", "cu_seqlens_padded", "max_seqlen"):
        assert torch.equal(part[name], whole[name]), name


def test_megatron_when_looked_at_then_shapes_and_dtypes_are_those_of_its_batch() -> None:
    fields = adapters.megatron(microbatch())
    kinds = {name: (tuple(value.shape), value.dtype) for name, value in fields.items()}
    sequence, bounds = (1, 32), (1, 5)
    assert kinds == {
        "tokens": (sequence, torch.int64),
        "labels": (sequence, torch.int64),
        "loss_mask": (sequence, torch.float32),
        "position_ids": (sequence, torch.int64),
        "cu_seqlens": (bounds, torch.int32),
        "cu_seqlens_padded": (bounds, torch.int32),
        "max_seqlen": ((1,), torch.int32),
    }
    assert fields["max_seqlen"].tolist() == [8]


def test_megatron_when_cp_ranks_add_up_then_the_loss_is_that_of_the_labels() -> None:
    losses = torch.arange(32.0).view(1, 32)
    whole = adapters.megatron(microbatch())
    parts = [adapters.megatron(microbatch(place=SlicePlace(cp=2, cp_rank=r))) for r in range(2)]
    cut_losses = [sliced_by_megatron(losses, whole["cu_seqlens"], 2, r) for r in range(2)]
    total = sum(megatron_loss(part, mine) for part, mine in zip(parts, cut_losses, strict=True))
    assert total.item() == megatron_loss(whole, losses).item() == 0 + 1 + 8 + 9 + 10 + 11 + 12


def test_megatron_when_a_stage_gets_no_field_then_none_and_boundaries_on_all() -> None:
    by_stage = [adapters.megatron(microbatch(place=SlicePlace(pp=3, pp_rank=p))) for p in range(3)]
    has = [{name for name, value in fields.items() if value is not None} for fields in by_stage]
    shared = {"position_ids", "cu_seqlens", "cu_seqlens_padded", "max_seqlen"}
    assert has == [shared | {"tokens"}, shared, shared | {"labels", "loss_mask"}]


@pytest.mark.parametrize("name", ["transformers", "torchtitan"])
def test_adapter_when_the_framework_takes_whole_sequences_then_slices_are_refused(name: str) -> None:
    with pytest.raises(MeshError, match=rf"{name} takes whole microbatches, mesh\.cp must be 1, got 2"):
        ADAPTERS[name](microbatch(place=SlicePlace(cp=2)))
    with pytest.raises(BadRequestError, match=rf"{name} needs labels on every rank, stage 0 gets none"):
        ADAPTERS[name](microbatch(place=SlicePlace(pp=2)))
