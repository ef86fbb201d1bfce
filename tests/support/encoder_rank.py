"""One rank of a vision-language model, as a process: `encoder_rank.py RANK WORLD_SIZE FOLDER CASE...`.

For each case reads the batch that FOLDER/CASE/RANK.arrow holds, encodes what it has to, exchanges embeddings, and
writes the summed loss and gradients of all ranks to FOLDER/CASE/RANK.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist

from loadmaster import encoder, vision
from loadmaster.batch import Batch, Microbatch, to_batch
from loadmaster.images import Images
from loadmaster.tensors import Framework

SIZE = 6
VOCABULARY = 1 << 20


class Model(torch.nn.Module):
    """An encoder that merges patches and mixes all of a unit, and a backbone that scores each token by itself."""

    def __init__(self, patch_dim: int, merge: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.merge = merge
        self.patches = torch.nn.Parameter(torch.randn(patch_dim, SIZE, generator=generator, dtype=torch.float64))
        self.words = torch.nn.Parameter(torch.randn(64, SIZE, generator=generator, dtype=torch.float64))
        self.head = torch.nn.Parameter(torch.randn(SIZE, 64, generator=generator, dtype=torch.float64))

    def encode(self, images: Images) -> torch.Tensor:
        """Shape (embeddings, SIZE): attention over each temporal group, then one embedding a merged patch."""
        pixels = vision.normalise(images.pixel_values, images.mean, images.std, torch.float64)
        frames = [h * w for t, h, w in images.encoder_grid_thw.tolist() for _ in range(t)]
        rows = (pixels @ self.patches / 8).split(frames)
        mixed = [frame + torch.softmax(frame @ frame.T / 8, -1) @ frame for frame in rows]
        merged = torch.tanh(torch.cat(mixed)).unflatten(0, (-1, self.merge**2))
        return merged.mean(dim=1)

    def loss(self, microbatch: Microbatch, embeddings: torch.Tensor) -> torch.Tensor:
        """Summed over the tokens of this rank's slice."""
        words = self.words[microbatch.tokens % 64]
        merged = torch.tanh(encoder.merge(words, embeddings, microbatch))
        return torch.nn.functional.cross_entropy(
            merged @ self.head, microbatch.labels.remainder(64).where(microbatch.loss_mask, -100), reduction="sum"
        )


def model_of(batch: Batch) -> Model:
    fields = batch.images[0].fields  # type: ignore[union-attr]
    return Model(fields.patch_dim, fields.merge)


def run(batch: Batch, model: Model, group: Any) -> torch.Tensor:
    """One step of one rank: forward and backward of each microbatch. The loss of the rank's own tokens."""
    total = torch.zeros((), dtype=torch.float64)
    for microbatch in batch.microbatches():
        images = microbatch.images
        embeddings = model.encode(images)
        if group is not None:
            embeddings = encoder.exchange(embeddings, microbatch, group)
        is_mine = images.seat is None or receives(images)
        loss = model.loss(microbatch, embeddings) if is_mine else embeddings.sum()
        (loss / batch.global_valid_tokens).backward()
        total += loss.detach() / batch.global_valid_tokens
    return total


def receives(images: Images) -> bool:
    coords = images.seat.coords_of(images.seat.rank)  # type: ignore[union-attr]
    return coords["pp"] == coords["tp"] == 0


def read(path: Path) -> Batch:
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        record = reader.read_next_batch()
    return to_batch(record, step=0, source_names=["web"], num_rows=1, framework=Framework.TORCH)


def result(loss: torch.Tensor, model: Model) -> dict[str, Any]:
    gradients = {name: p.grad.tolist() for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": float(loss), "gradients": gradients}


def main(rank: int, world_size: int, folder: Path, cases: list[str]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    for case in cases:
        train(rank, folder / case)
    dist.barrier()
    dist.destroy_process_group()


def train(rank: int, folder: Path) -> None:
    """One step with all ranks."""
    batch = read(folder / f"{rank}.arrow")
    model = model_of(batch)
    loss = run(batch, model, dist.group.WORLD)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(parameter.grad)
    dist.all_reduce(loss)
    (folder / f"{rank}.json").write_text(json.dumps(result(loss, model)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
