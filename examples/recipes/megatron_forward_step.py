"""Feed Megatron-LM: `get_batch`, `forward_step` and the iterator of an external dataloader.

Take `get_batch` and `forward_step` into your pretraining script in place of its own, `MegatronBatches` as what the
datasets provider returns, and start with `--dataloader-type external`: its training loop then takes microbatches from
the iterator, a step's `get_num_microbatches()` in turn. With `--dataloader-save DIR` it calls `save_state` at each
checkpoint. Batches are cut for cp and pp already; each rank connects for itself, so nothing is broadcast.

Run as a script it trains a tiny GPT of megatron-core, on one process, without CUDA:

    python examples/recipes/megatron_forward_step.py run.yaml --folder checkpoints --accumulate 4
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer import TransformerConfig

import loadmaster
from loadmaster import adapters


class MegatronBatches:
    """Microbatches of a stream, one a turn, as the dict that `get_batch` wants."""

    def __init__(self, stream: loadmaster.Stream) -> None:
        self.stream, self._microbatches = stream, iter(())
        self.global_valid_tokens = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        microbatch = next(self._microbatches, None)
        if microbatch is None:
            batch = next(self.stream)
            self._microbatches, self.global_valid_tokens = batch.microbatches(), batch.global_valid_tokens
            microbatch = next(self._microbatches)
        return adapters.megatron(microbatch)

    def save_state(self) -> dict[str, Any]:
        """Called between steps, when all microbatches of one were taken: where to go on."""
        return self.stream.state_dict()


def get_batch(data_iterator: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """What Megatron's `get_batch` returns after its slicing, with boundaries as its packed attention takes them."""
    fields = {
        name: value.to(device(), non_blocking=True)
        if isinstance(value, torch.Tensor) and name != "max_seqlen"
        else value
        for name, value in next(data_iterator).items()
    }
    bounds, padded, longest = (fields.pop(name) for name in ("cu_seqlens", "cu_seqlens_padded", "max_seqlen"))
    params = PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=bounds[0],
        cu_seqlens_kv=bounds[0],
        cu_seqlens_q_padded=padded[0],
        cu_seqlens_kv_padded=padded[0],
        max_seqlen_q=int(longest[0]),
        max_seqlen_kv=int(longest[0]),
    )
    return fields | {"packed_seq_params": params}


def loss_func(loss_mask: torch.Tensor, losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Summed loss and how many labels count: with `--calculate-per-token-loss` Megatron divides by all ranks' sum."""
    mask = loss_mask.view(-1)
    total, count = torch.sum(losses.view(-1).float() * mask), mask.sum().to(torch.int)
    return total, count, {"lm loss": torch.stack([total.detach(), count])}


def forward_step(data_iterator: Iterator[dict[str, Any]], model: Any) -> tuple[torch.Tensor, Any]:
    """What `pretrain` is given."""
    batch = get_batch(data_iterator)
    losses = model(
        batch["tokens"],
        batch["position_ids"],
        None,
        labels=batch["labels"],
        packed_seq_params=batch["packed_seq_params"],
    )
    return losses, partial(loss_func, batch["loss_mask"])


def device() -> str:
    """Where the model is."""
    return "cuda" if torch.cuda.is_available() else "cpu"


class AttentionByBoundaries(torch.nn.Module):
    """Stands where Transformer Engine's packed attention does on a GPU: causal, inside each pair of boundaries."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, *qkv_THD: Any, packed_seq_params: PackedSeqParams, **_: Any) -> torch.Tensor:
        """Shape (T, H * D)."""
        outputs = []
        for a, b in pairwise(packed_seq_params.cu_seqlens_q_padded.tolist()):
            qkv_HTD = [values[a:b].transpose(0, 1) for values in qkv_THD[:3]]
            outputs.append(torch.nn.functional.scaled_dot_product_attention(*qkv_HTD, is_causal=True).transpose(0, 1))
        return torch.cat(outputs).flatten(1)


def make_model(vocab_size: int, max_len: int) -> GPTModel:
    """A GPT that trains on a CPU."""
    config = TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        calculate_per_token_loss=True,
        cuda_graph_scope=[],
    )
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = AttentionByBoundaries
    return GPTModel(config, spec, vocab_size, max_len, position_embedding_type="learned_absolute").to(device())


def train_step(model: GPTModel, optimizer: torch.optim.Optimizer, batches: MegatronBatches, accumulate: int) -> None:
    """As Megatron's schedule without pipelining, whose own counts tokens on a GPU, and its `finalize_model_grads`."""
    optimizer.zero_grad()
    num_tokens = torch.zeros([], dtype=torch.int, device=device())
    for _ in range(accumulate):
        losses, loss_of = forward_step(batches, model)
        total, count, _ = loss_of(losses)
        total.backward()
        num_tokens += count
    if int(num_tokens) != batches.global_valid_tokens:
        raise ValueError(
            f"a step must be {batches.global_valid_tokens} labels, got {int(num_tokens)}: see --accumulate"
        )
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= num_tokens
    optimizer.step()


def main(argv: Sequence[str] | None = None) -> torch.nn.Module:
    """Train to the end of the stream or `--steps`; returns the model."""
    options = parse(argv)
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    parallel_state.initialize_model_parallel()
    try:
        torch.manual_seed(0)
        return fit(make_model(options.vocab_size, options.seq_len), options)
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def fit(model: GPTModel, options: argparse.Namespace) -> GPTModel:
    """Train; a checkpoint holds the step's number, model, optimizer and what `save_state` gave."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    path, done, resume = Path(options.folder) / "checkpoint.pt", 0, None
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"], strict=False)
        optimizer.load_state_dict(state["optimizer"])
        done, resume = state["step"], state["dataloader"]
    with loadmaster.connect(options.target, run=options.run, resume=resume) as stream:
        batches = MegatronBatches(stream)
        for step in range(done + 1, options.steps + 1):
            try:
                train_step(model, optimizer, batches, options.accumulate)
            except StopIteration:
                break
            if step % options.save_every == 0:
                save(path, {"step": step, "dataloader": batches.save_state()}, model, optimizer)
    return model


def save(path: Path, state: dict[str, Any], model: GPTModel, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    torch.save(state | {"model": weights, "optimizer": optimizer.state_dict()}, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train as Megatron-LM does on batches from Loadmaster.")
    parser.add_argument("target", help="address of the planner, or a run spec (YAML) to load embedded")
    parser.add_argument("--run", help="name of the run")
    parser.add_argument("--folder", default="checkpoints", help="where checkpoints are kept")
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps")
    parser.add_argument("--accumulate", type=int, default=4, help="microbatches of a step on this rank")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--seq-len", type=int, default=8192)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
