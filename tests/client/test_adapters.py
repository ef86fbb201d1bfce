"""Adapters by themselves: numpy as well as torch, shapes and dtypes, stages, what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from loadmaster import adapters
from loadmaster.batch import Microbatch
from loadmaster.tensors import Framework
from loadmaster_flight.constructor.slices import cut
from loadmaster_flight.spec import MeshSpec
from loadmaster_flight.wire.errors import BadRequestError, MeshError
from loadmaster_flight.wire.slicing import WHOLE, SlicePlace
from support.packed import Piece, packed_batch, packed_record

ADAPTERS = {
    "transformers": lambda microbatch: adapters.transformers(microbatch, seq_idx=True),
    "torchtitan": lambda microbatch: joined(*adapters.torchtitan(microbatch)),
    "megatron": adapters.megatron,
}
PIECES = [Piece([5, 6, 7]), Piece([8, 9, 10, 11, 12], goes_on=13), Piece([14])]


def joined(inputs: dict[str, Any], labels: Any) -> dict[str, Any]:
    return inputs | {"labels": labels}


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
