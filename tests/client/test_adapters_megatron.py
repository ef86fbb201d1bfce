"""The Megatron-LM adapter against megatron-core itself: its slices, its rotary embedding, its GPT and its loss.

Its packed attention is Transformer Engine's, and its own rotary frequencies and attention scores are made on a GPU:
the GPT here has learned positions, and torch's attention inside each pair of boundaries.
"""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from loadmaster import adapters
from loadmaster.batch import Microbatch
from loadmaster_flight.constructor.slices import cut
from loadmaster_flight.spec import MeshSpec
from loadmaster_flight.wire.slicing import WHOLE, SlicePlace
from support.packed import Piece, packed_batch, packed_record

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("megatron.core", reason="megatron-core is not installed (requirements/peers.txt)")

VOCAB = 64
PIECES = [Piece([5, 6, 7]), Piece([8, 9, 10, 11, 12], goes_on=13), Piece(list(range(20, 34)))]
SLICED = ("tokens", "labels", "loss_mask", "position_ids")
PLACES = [(2, 0), (2, 1), (4, 0), (4, 3)]


def core(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"megatron.core.{name}")


def microbatches(*, place: SlicePlace = WHOLE) -> list[Microbatch]:
    record = packed_record([PIECES, [Piece([40, 41])]], seq_len=48, align=8)
    return list(packed_batch(cut(record, place, MeshSpec())).microbatches())


def packed_seq_params(fields: dict[str, Any]) -> Any:
    """What `get_batch` makes of the boundaries (at cp 1, where it slices nothing)."""
    bounds = fields["cu_seqlens"][0], fields["cu_seqlens_padded"][0], fields["max_seqlen"]
    batch = {name: fields[name] for name in SLICED}
    same, params = core("utils").get_thd_batch_on_this_cp_rank(dict(batch), *bounds, cp_size=1, cp_rank=0)
    assert all(same[name] is batch[name] for name in batch)
    return params


@contextmanager
def one_rank_of(cp: int, cp_rank: int) -> Iterator[Any]:
    """A process group that has this rank and size, and sends nothing."""
    dist.init_process_group("fake", rank=cp_rank, world_size=cp, store=FakeStore())
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("cp", "cp_rank"), PLACES)
def test_megatron_when_cut_for_cp_then_as_megatron_cuts_each_document(cp: int, cp_rank: int) -> None:
    whole = adapters.megatron(microbatches()[0])
    part = adapters.megatron(microbatches(place=SlicePlace(cp=cp, cp_rank=cp_rank))[0])
    cut_by_megatron = core("utils").get_batch_on_this_cp_rank
    with one_rank_of(cp, cp_rank) as group:
        documents = [
            cut_by_megatron({name: whole[name][:, a:b] for name in SLICED}, cp_group=group)
            for a, b in itertools.pairwise(whole["cu_seqlens_padded"][0].tolist())
        ]
    for name in SLICED:
        assert part[name].dtype == whole[name].dtype
        assert torch.equal(part[name], torch.cat([document[name] for document in documents], dim=1)), name
    for name in ("cu_seqlens", "cu_seqlens_padded", "max_seqlen"):
        assert torch.equal(part[name], whole[name]), name


@pytest.fixture(scope="module")
def config() -> Any:
    return core("transformer").TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        calculate_per_token_loss=True,
        cuda_graph_scope=[],
    )


@pytest.mark.parametrize(("cp", "cp_rank"), [(1, 0), *PLACES])
def test_megatron_when_it_rotates_packed_tokens_then_by_our_positions(config: Any, cp: int, cp_rank: int) -> None:
    fields = adapters.megatron(microbatches(place=SlicePlace(cp=cp, cp_rank=cp_rank))[0])
    longest, bounds = int(fields["max_seqlen"][0]), fields["cu_seqlens_padded"][0]
    positions = fields["position_ids"][0]
    angles_PD = torch.arange(longest)[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1])
    queries_THD = torch.randn(len(positions), 2, 4, generator=torch.Generator().manual_seed(1))
    rope = core("models.common.embeddings.rope_utils").apply_rotary_pos_emb
    with one_rank_of(cp, cp_rank) as group:
        theirs = rope(queries_THD, angles_PD[:, None, None], config, cu_seqlens=bounds, cp_group=group)
        ours = rope(queries_THD.unsqueeze(1), angles_PD[positions][:, None, None], config, cp_group=group)
    assert torch.equal(theirs, ours.squeeze(1))


class AttentionByBoundaries(torch.nn.Module):
    """Stands where Transformer Engine's packed attention does: causal, inside each pair of boundaries."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, *qkv_THD: Any, packed_seq_params: Any, **_: Any) -> torch.Tensor:
        outputs = []
        for a, b in itertools.pairwise(packed_seq_params.cu_seqlens_q_padded.tolist()):
            qkv_HTD = [values[a:b].transpose(0, 1) for values in qkv_THD[:3]]
            outputs.append(torch.nn.functional.scaled_dot_product_attention(*qkv_HTD, is_causal=True).transpose(0, 1))
        return torch.cat(outputs).flatten(1)


@pytest.fixture
def make_gpt(config: Any) -> Iterator[Callable[[], Any]]:
    def make() -> Any:
        torch.manual_seed(7)
        spec = core("models.gpt.gpt_layer_specs").get_gpt_layer_local_spec()
        spec.submodules.self_attention.submodules.core_attention = AttentionByBoundaries
        options = {"vocab_size": VOCAB, "max_sequence_length": 48, "position_embedding_type": "learned_absolute"}
        return core("models.gpt").GPTModel(config, spec, **options).eval()

    state = core("parallel_state")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    state.initialize_model_parallel()
    yield make
    state.destroy_model_parallel()
    dist.destroy_process_group()


def loss_of(model: Any, fields: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Through the schedule that Megatron-LM's training loop calls, with the loss function of its pretraining script.

    Returns:
        Summed loss and number of tokens that count, which its `finalize_model_grads` divides by.
    """

    def loss_func(losses_1T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        mask = fields["loss_mask"].view(-1)
        return torch.sum(losses_1T.view(-1).float() * mask), mask.sum().to(torch.int), {}

    params = packed_seq_params(fields)
    losses = model(fields["tokens"], fields["position_ids"], None, labels=fields["labels"], packed_seq_params=params)
    calculate = core("pipeline_parallel.schedules").forward_step_calc_loss
    return calculate(model, losses, loss_func, model.config, None, False, 2, [], cp_group_size=1, is_last_stage=True)


def alone(piece: Piece) -> dict[str, Any]:
    """A document as a batch of its own, made by hand."""
    length = len(piece.tokens)
    bounds = torch.tensor([[0, length]], dtype=torch.int32)
    labels = torch.tensor([piece.labels])
    return {
        "tokens": torch.tensor([piece.tokens]),
        "labels": labels.clamp(min=0),
        "loss_mask": (labels >= 0).float(),
        "position_ids": torch.arange(length).unsqueeze(0),
        "cu_seqlens": bounds,
        "cu_seqlens_padded": bounds,
        "max_seqlen": torch.tensor([length], dtype=torch.int32),
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning:megatron")
def test_megatron_when_its_gpt_takes_a_step_then_loss_and_gradients_are_those_of_each_document_alone(
    make_gpt: Callable[[], Any],
) -> None:
    packed, by_hand = make_gpt(), make_gpt()
    ours = [loss_of(packed, adapters.megatron(microbatch)) for microbatch in microbatches()]
    theirs = [loss_of(by_hand, alone(piece)) for piece in [*PIECES, Piece([40, 41])]]
    totals = [[sum(values) for values in zip(*losses, strict=True)] for losses in (ours, theirs)]
    num_valid = packed_batch(packed_record([PIECES, [Piece([40, 41])]], seq_len=48, align=8)).global_valid_tokens
    assert [int(count) for _, count in totals] == [num_valid, num_valid]
    assert totals[0][0].item() == pytest.approx(totals[1][0].item(), rel=1e-5)
    for loss, _ in totals:
        loss.backward()
    for (name, mine), reference in zip(packed.named_parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, reference.grad, rtol=1e-4, atol=1e-6, msg=name)
