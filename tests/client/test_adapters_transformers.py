"""The transformers adapter against transformers itself: its collator, its boundary finder, and a tiny Llama's loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from loadmaster import adapters
from support.packed import Piece, packed_batch, packed_record

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
VOCAB = 64
DOCUMENTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15], [16], [17, 18, 19, 20, 21]]


def adapted(pieces: list[Piece], *, seq_len: int, align: int = 1, seq_idx: bool = False) -> dict[str, Any]:
    batch = packed_batch(packed_record([pieces], seq_len=seq_len, align=align))
    return adapters.transformers(next(batch.microbatches()), seq_idx=seq_idx)


@pytest.mark.parametrize("seq_idx", [False, True])
def test_transformers_when_nothing_is_padded_then_as_its_own_collator_flattens(seq_idx: bool) -> None:
    collator = transformers.DataCollatorWithFlattening(
        return_flash_attn_kwargs=True, return_seq_idx=seq_idx, return_tensors="pt"
    )
    theirs = collator([{"input_ids": ids} for ids in DOCUMENTS])
    ours = adapted([Piece(ids) for ids in DOCUMENTS], seq_len=sum(map(len, DOCUMENTS)), seq_idx=seq_idx)
    assert ours.keys() - theirs.keys() == {"shift_labels"}
    for name, value in theirs.items():
        assert type(ours[name]) is type(value), name
        if isinstance(value, torch.Tensor):
            assert (ours[name].dtype, ours[name].tolist()) == (value.dtype, value.tolist()), name
        else:
            assert ours[name] == value, name


def test_transformers_when_it_looks_for_boundaries_itself_then_it_finds_ours() -> None:
    from transformers.modeling_flash_attention_utils import prepare_fa_kwargs_from_position_ids

    ours = adapted([Piece(ids) for ids in DOCUMENTS], seq_len=64, align=8)
    (bounds_q, bounds_k), (longest_q, longest_k) = prepare_fa_kwargs_from_position_ids(ours["position_ids"])
    assert bounds_q.tolist() == ours["cu_seq_lens_q"].tolist()
    assert bounds_k.tolist() == ours["cu_seq_lens_k"].tolist()
    assert (int(longest_q), int(longest_k)) == (ours["max_length_q"], ours["max_length_k"])


def test_transformers_when_sequences_are_packed_then_its_masks_and_its_flash_path_see_it() -> None:
    from transformers.masking_utils import find_packed_sequence_indices
    from transformers.modeling_flash_attention_utils import _is_packed_sequence

    ours = adapted([Piece(ids) for ids in DOCUMENTS], seq_len=64, align=8, seq_idx=True)
    assert _is_packed_sequence(ours["position_ids"], batch_size=1)
    assert find_packed_sequence_indices(ours["position_ids"]).tolist() == ours["seq_idx"].tolist()


@pytest.fixture(scope="module")
def make_llama():
    def make(attention: str) -> Any:
        torch.manual_seed(7)
        config = transformers.LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            attn_implementation=attention,
        )
        return transformers.LlamaForCausalLM(config).eval()

    return make


def loss_by_hand(model: Any, pieces: list[Piece]) -> tuple[float, int]:
    """Each document alone through the model; summed loss over its targets, divided by their number."""
    total, count = 0.0, 0
    for piece in pieces:
        logits = model(input_ids=torch.tensor([piece.tokens]), use_cache=False).logits[0]
        labels = torch.tensor(piece.labels)
        total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100).item()
        count += int((labels != -100).sum())
    return total / count, count


PADDED = [Piece(ids) for ids in DOCUMENTS]
CUT = [Piece([5, 6, 7, 8, 9, 10, 11, 12], goes_on=13), Piece([20, 21, 22]), Piece([30] * 16, goes_on=31)]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("pieces", "seq_len"), [(PADDED, 64), (CUT, 32)], ids=["documents with a tail", "cut pieces, one at the very end"]
)
def test_transformers_when_a_llama_takes_it_then_the_loss_is_that_of_each_document_alone(
    make_llama: Any, attention: str, pieces: list[Piece], seq_len: int
) -> None:
    model = make_llama(attention)
    with torch.no_grad():
        expected, count = loss_by_hand(model, pieces)
        batch = adapted(pieces, seq_len=seq_len, align=8)
        loss = model(**batch, use_cache=False, num_items_in_batch=count).loss
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_transformers_when_only_labels_are_used_then_the_loss_is_the_same(make_llama: Any) -> None:
    model = make_llama("sdpa")
    batch = adapted(PADDED, seq_len=64, align=8)
    del batch["shift_labels"]
    with torch.no_grad():
        expected, count = loss_by_hand(model, PADDED)
        loss = model(**batch, use_cache=False, num_items_in_batch=count).loss
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_transformers_when_documents_are_padded_then_the_first_token_of_each_has_no_label() -> None:
    batch = adapted(PADDED, seq_len=64, align=8)
    labels, starts = batch["labels"][0], batch["cu_seq_lens_q"][:-1].long()
    assert labels[starts].tolist() == [-100] * 5
    kept = labels != -100
    assert torch.equal(labels[kept], batch["input_ids"][0][kept])
    assert int(kept.sum()) == sum(len(ids) - 1 for ids in DOCUMENTS)
