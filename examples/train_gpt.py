"""Train a small GPT, on text and pictures, with batches from Loadmaster. Copy it and change the model.

One process per rank. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are read as torchrun sets them:

    torchrun --nproc-per-node 4 examples/train_gpt.py http://127.0.0.1:8400 --run-name demo --checkpoint gpt.pt

Four lines tie the loop to the loader: `connect`, the two `for`s, and `state_dict` in the checkpoint. What makes it
correct is in `train_step`: documents do not see each other (`cu_seqlens`), and the loss is divided by the valid tokens
of the whole step on all ranks, not averaged per microbatch. Pictures are normalised on the device, and their embeddings
take the places of their placeholders in `GPT.embed`.
"""

# T = tokens of a microbatch, E = embedding, H = heads, D = documents, K = tokens of pictures

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import loadmaster
from loadmaster import encoder, vision

IGNORE_INDEX = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class GPTConfig:
    """Size of the model. `max_len` is the longest piece, the run's seq_len; `image_dim` the numbers of a picture's
    token, patch_dim * merge^2 of the run's media.vision (0: no pictures)."""

    vocab_size: int = 4096
    max_len: int = 1024
    image_dim: int = 1536
    dim: int = 96
    num_layers: int = 3
    num_heads: int = 4


class Attention(nn.Module):
    """Causal self-attention inside each document of a packed microbatch."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x_TE: Tensor, lengths_D: list[int]) -> Tensor:
        """Attend document by document. On a GPU, flash-attention's varlen call takes cu_seqlens as it is."""
        q_THK, k_THK, v_THK = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(0, 1) for part in self.qkv(x_TE).chunk(3, dim=-1)
        )
        documents = zip(*(part.split(lengths_D, dim=1) for part in (q_THK, k_THK, v_THK)), strict=True)
        mixed = [F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0] for q, k, v in documents]
        return self.out(torch.cat(mixed, dim=1).transpose(0, 1).flatten(1))


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and around a residual."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm_attention, self.norm_feed = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.attention = Attention(config)
        self.feed = nn.Sequential(
            nn.Linear(config.dim, 4 * config.dim), nn.GELU(), nn.Linear(4 * config.dim, config.dim)
        )

    def forward(self, x_TE: Tensor, lengths_D: list[int]) -> Tensor:
        x_TE = x_TE + self.attention(self.norm_attention(x_TE), lengths_D)
        return x_TE + self.feed(self.norm_feed(x_TE))


class GPT(nn.Module):
    """A decoder over one packed microbatch; positions restart in each document, embeddings are tied.

    Pictures go through one linear layer: a real model has a vision encoder there.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.dim)
        self.positions = nn.Embedding(config.max_len, config.dim)
        self.images = nn.Linear(config.image_dim, config.dim) if config.image_dim else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def embed(self, microbatch: Any) -> Tensor:
        """Embeddings of the tokens, those of pictures at their placeholders, shape (T, E).

        A microbatch without pictures has a dummy, whose embeddings go nowhere: all ranks run the same layers.
        """
        x_TE, images = self.tokens(microbatch.tokens), microbatch.images
        if images is None or self.images is None:
            return x_TE
        pixels = vision.normalise(images.pixel_values.to(x_TE.device), images.mean, images.std)
        pictures_KE = self.images(pixels.reshape(-1, self.images.in_features))  # merged patches lie side by side
        if images.is_hybrid:  # strategy vlm_hybrid: this rank encoded pictures of others
            pictures_KE = encoder.exchange(pictures_KE, microbatch, dist.group.WORLD)
        return encoder.merge(x_TE, pictures_KE, microbatch)

    def forward(self, microbatch: Any) -> Tensor:
        """Logits of the next token, shape (T, vocab_size)."""
        lengths_D = microbatch.cu_seqlens.diff().tolist()
        x_TE = self.embed(microbatch) + self.positions(microbatch.position_ids)
        for block in self.blocks:
            x_TE = block(x_TE, lengths_D)
        return F.linear(self.norm(x_TE), self.tokens.weight)


def loss_sum(model: GPT, microbatch: Any) -> Tensor:
    """Summed loss of one microbatch; labels are shifted already, -100 where there is no loss."""
    logits = model(microbatch)
    return F.cross_entropy(logits, microbatch.labels, reduction="sum", ignore_index=IGNORE_INDEX)


def train_step(model: GPT, optimizer: torch.optim.Optimizer, batch: Any) -> float:
    """One optimizer step; returns the mean loss of all valid tokens on all ranks."""
    optimizer.zero_grad(set_to_none=False)
    total = torch.zeros(())
    for microbatch in batch.microbatches():
        loss = loss_sum(model, microbatch) / batch.global_valid_tokens
        loss.backward()
        total += loss.detach()
    sum_over_ranks([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return sum_over_ranks([total])


def sum_over_ranks(tensors: list[Tensor]) -> float:
    """Sum tensors in place over all ranks with one call; returns the first value."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    if dist.is_initialized():
        dist.all_reduce(flat)
    for tensor, summed in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(summed.view_as(tensor))
    return float(flat[0])


@torch.no_grad()
def evaluate(model: GPT, options: argparse.Namespace, stream_name: str) -> float:
    """Mean loss over one finite evaluation pass, every sample exactly once."""
    total, count = torch.zeros(()), 0
    with connect(options, stream=stream_name) as stream:
        for batch in stream:
            total += sum(loss_sum(model, microbatch) for microbatch in batch.microbatches())
            count += batch.global_valid_tokens
    return sum_over_ranks([total]) / max(count, 1)


def connect(options: argparse.Namespace, **more: Any) -> Any:
    """This rank's stream of batches."""
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    return loadmaster.connect(options.url, run=options.run_name, rank=rank, world_size=world_size, **more)


def save(path: Path, model: GPT, optimizer: torch.optim.Optimizer, stream: Any) -> None:
    """Write a checkpoint, whole or not at all. The data's position is as small as a step number."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "stream": stream.state_dict()}
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def fit(
    model: GPT, optimizer: torch.optim.Optimizer, options: argparse.Namespace, resume: dict[str, Any] | None
) -> None:
    """Train until the stream ends, on every rank at the same step."""
    with connect(options, resume=resume) as stream:
        start_s = time.monotonic()
        for batch in stream:
            loss = train_step(model, optimizer, batch)
            step_s, start_s = time.monotonic() - start_s, time.monotonic()
            if batch.step % options.log_every == 0:
                say(
                    f"step {batch.step:4d}  loss {loss:6.3f}  valid tokens {batch.global_valid_tokens:5d}"
                    f"  {step_s * 1000:5.0f} ms, of which {stream.stats.wait_ms:.0f} waiting for data"
                )
            if options.checkpoint and (batch.step + 1) % options.save_every == 0 and is_first_rank():
                save(options.checkpoint, model, optimizer, stream)


def restore(path: Path, model: GPT, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Load a checkpoint; returns the data's position for `connect`."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return dict(state["stream"])


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and evaluate at the end."""
    options = parse(argv)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if "MASTER_ADDR" in os.environ:
        dist.init_process_group("gloo")
    sizes = {name: getattr(options, name) for name in ("vocab_size", "max_len", "image_dim")}
    model = GPT(GPTConfig(**sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95))
    resume = restore(options.checkpoint, model, optimizer) if options.resume else None
    say(f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f} M parameters")
    fit(model, optimizer, options, resume)
    if options.evaluate:
        say(f"evaluation {options.evaluate}  loss {evaluate(model, options, options.evaluate):6.3f}")
    if dist.is_initialized():
        dist.barrier()  # rank 0 holds the store that the others still talk to
        dist.destroy_process_group()
    return 0


def is_first_rank() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def say(line: str) -> None:
    """Print on the first rank."""
    if is_first_rank():
        print(line, flush=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a small GPT with batches from Loadmaster.")
    parser.add_argument("url", help="address of the planner, or a run spec (YAML) to load embedded")
    parser.add_argument("--run-name", help="name of the run")
    parser.add_argument("--checkpoint", type=Path, help="file to save to")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    parser.add_argument("--evaluate", metavar="STREAM", help="evaluation stream to run at the end")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--max-len", type=int, default=1024, help="the run's seq_len")
    parser.add_argument("--image-dim", type=int, default=1536, help="numbers of a picture's token; 0: no pictures")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=1, help="torch threads of this rank")
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--save-every", type=int, default=20)
    options = parser.parse_args(argv)
    if options.resume and not options.checkpoint:
        parser.error("--resume needs --checkpoint")
    return options


if __name__ == "__main__":
    sys.exit(main())
