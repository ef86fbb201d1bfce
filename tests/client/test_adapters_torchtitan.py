"""The torchtitan adapter against torchtitan itself: its document metadata, its masks, its loss.

Its models do not run without CUDA's triton; its trainer wants wandb and tensorboard.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_mask

from loadmaster import adapters
from support.packed import Piece, packed_batch, packed_record

pytest.importorskip("torchtitan", reason="torchtitan is not installed (requirements/peers.txt)")
PIECES = [Piece([5, 6, 7]), Piece([8, 9, 10, 11, 12], goes_on=13), Piece([14])]


@pytest.fixture(scope="module")
def attention() -> Iterator[Any]:
    """Its attention module. The package around it would import the kernels, and with them triton."""
    (root,) = importlib.util.find_spec("torchtitan.models").submodule_search_locations
    package = types.ModuleType("torchtitan.models.common")
    package.__path__ = [f"{root}/common"]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setitem(sys.modules, package.__name__, package)
        yield importlib.import_module("torchtitan.models.common.attention")


@pytest.fixture(scope="module")
def loss() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module("torchtitan.components.loss")
    return module.CrossEntropyLoss(module.CrossEntropyLoss.Config())


documents = st.lists(st.integers(1, 20), min_size=1, max_size=6)


@given(lengths=documents, align=st.sampled_from([1, 2, 8]), tail=st.booleans())
def test_torchtitan_when_it_looks_for_documents_then_it_finds_the_segments(
    attention: Any, lengths: list[int], align: int, tail: bool
) -> None:
    pieces = [Piece(list(range(1, n + 1))) for n in lengths]
    seq_len = sum(-(-n // align) * align for n in lengths) + 8 * tail
    microbatch = next(packed_batch(packed_record([pieces], seq_len=seq_len, align=align)).microbatches())
    inputs, labels = adapters.torchtitan(microbatch)
    theirs = attention.create_varlen_metadata_for_document(inputs["positions"])
    for bounds in (theirs.cu_seq_q, theirs.cu_seq_k):
        assert (bounds.dtype, bounds.tolist()) == (torch.int32, microbatch.cu_seqlens.tolist())
    assert theirs.max_q == theirs.max_k == microbatch.max_seqlen
    assert {value.shape for value in (*inputs.values(), labels)} == {(1, seq_len)}
    assert {value.dtype for value in (*inputs.values(), labels)} == {torch.int64}


@pytest.mark.parametrize("name", ["get_document_mask_mod", "get_efficient_causal_mask_mod_for_packed_document"])
def test_torchtitan_when_it_masks_documents_then_as_the_boundaries_say(attention: Any, name: str) -> None:
    microbatch = next(packed_batch(packed_record([PIECES], seq_len=32, align=8)).microbatches())
    inputs, _ = adapters.torchtitan(microbatch)
    causal = torch.ones(32, 32, dtype=torch.bool).tril()
    theirs = create_mask(getattr(attention, name)(inputs["positions"]), 1, 1, 32, 32, device="cpu")[0, 0] & causal
    blocks = [torch.ones(int(n), int(n), dtype=torch.bool) for n in microbatch.cu_seqlens.diff()]
    assert torch.equal(theirs, torch.block_diag(*blocks).bool() & causal)


def test_torchtitan_when_its_loss_is_taken_then_the_microbatches_add_up_to_the_mean_over_valid_tokens(
    loss: Any,
) -> None:
    batch = packed_batch(packed_record([PIECES, [Piece(list(range(1, 20)))]], seq_len=32, align=8))
    logits = torch.randn(2, 32, 20, generator=torch.Generator().manual_seed(0))
    total = 0.0
    for microbatch, logits_TV in zip(batch.microbatches(), logits, strict=True):
        _, labels = adapters.torchtitan(microbatch)
        scaled, _ = loss(logits_TV.unsqueeze(0), labels, torch.tensor(batch.global_valid_tokens))
        total += scaled.item()
    targets = {0: 6, 1: 7, 8: 9, 9: 10, 10: 11, 11: 12, 12: 13} | {32 + n: n + 2 for n in range(18)}
    log_probs = logits.flatten(0, 1).log_softmax(-1)
    by_hand = -sum(log_probs[at, label] for at, label in targets.items()) / len(targets)
    assert batch.global_valid_tokens == len(targets)
    assert total == pytest.approx(by_hand.item(), rel=1e-5)


def test_torchtitan_when_flat_is_asked_for_then_the_same_without_the_axis_of_one_sequence() -> None:
    microbatch = next(packed_batch(packed_record([PIECES], seq_len=32, align=8)).microbatches())
    inputs, labels = adapters.torchtitan(microbatch)
    flat_inputs, flat_labels = adapters.torchtitan(microbatch, flat=True)
    assert list(flat_inputs) == ["input", "positions"]
    for name, values in flat_inputs.items():
        assert torch.equal(values, inputs[name][0]), name
    assert torch.equal(flat_labels, labels[0])
