"""The peer of throughput.py: what people write today around torch's DataLoader. One per rank.

Each worker reads its share of the row groups, encodes document by document, packs as Loadmaster does (queue first, then
best fit decreasing into the step's microbatches) and yields flat tokens, labels and cu_seqlens: never lists of tensors.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainConfig:
    """The same work that the run spec of the benchmark asks of Loadmaster."""

    files: tuple[str, ...]
    tokenizer: str
    seq_len: int
    bins_per_step: int
    align: int
    overdraw: float
    dp_rank: int = 0
    dp: int = 1
    num_workers: int = 2


class PlainDataset(IterableDataset[dict[str, Any]]):
    """Endless; yields one step of this rank at a time."""

    def __init__(self, config: PlainConfig) -> None:
        self._config = config

    def __iter__(self) -> Iterator[dict[str, Any]]:
        c = self._config
        info = get_worker_info()
        part, parts = (info.id, info.num_workers) if info else (0, 1)
        tokenizer = Tokenizer.from_file(c.tokenizer)
        end = tokenizer.token_to_id("</s>")
        documents = self._documents(c.dp_rank * parts + part, c.dp * parts, tokenizer, end)
        queue: list[np.ndarray] = []
        while True:
            bins, queue = _pack(documents, queue, c)
            yield _flatten(bins, c)

    def _documents(self, part: int, parts: int, tokenizer: Tokenizer, end: int) -> Iterator[np.ndarray]:
        c, rng = self._config, np.random.default_rng(part)
        groups = [(f, g) for f in c.files for g in range(pq.ParquetFile(f).num_row_groups)][part::parts]
        while True:
            for i in rng.permutation(len(groups)):
                name, group = groups[i]
                texts = pq.ParquetFile(name).read_row_group(group, columns=["text"]).column("text").to_pylist()
                for j in rng.permutation(len(texts)):
                    ids = np.array([*tokenizer.encode(texts[j], add_special_tokens=False).ids, end], np.int32)
                    for start in range(0, len(ids), c.seq_len):
                        yield ids[start : start + c.seq_len]


def _pack(
    documents: Iterator[np.ndarray], queue: list[np.ndarray], c: PlainConfig
) -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
    def size(piece: np.ndarray) -> int:
        return -(-len(piece) // c.align) * c.align

    drawn, total = [], sum(size(piece) for piece in queue)
    while total < c.bins_per_step * c.seq_len * (1 + c.overdraw):
        drawn.append(next(documents))
        total += size(drawn[-1])
    free = [(c.seq_len, b) for b in range(c.bins_per_step)]
    bins: list[list[np.ndarray]] = [[] for _ in free]
    left = []
    for piece in queue + sorted(drawn, key=size, reverse=True):
        at = bisect.bisect_left(free, (size(piece), -1))
        if at == len(free):
            left.append(piece)
            continue
        room, b = free.pop(at)
        bins[b].append(piece)
        bisect.insort(free, (room - size(piece), b))
    return bins, left


def _flatten(bins: list[list[np.ndarray]], c: PlainConfig) -> dict[str, Any]:
    tokens = np.zeros((len(bins), c.seq_len), np.int32)
    labels = np.full((len(bins), c.seq_len), -100, np.int32)
    segments, real = [], 0
    for b, pieces in enumerate(bins):
        at, cu = 0, [0]
        for piece in pieces:
            tokens[b, at : at + len(piece)] = piece
            labels[b, at : at + len(piece) - 1] = piece[1:]
            at += -(-len(piece) // c.align) * c.align
            real += len(piece)
            cu.append(at)
        segments.append(torch.tensor(cu, dtype=torch.int32))
    counts = sum(len(pieces) for pieces in bins)
    return {
        "tokens": torch.from_numpy(tokens).long(),
        "labels": torch.from_numpy(labels).long(),
        "cu_seqlens": segments,
        "num_tokens": real,
        "num_docs": counts,
    }


def plain_loader(config: PlainConfig) -> DataLoader[dict[str, Any]]:
    """The DataLoader of one rank."""
    return DataLoader(PlainDataset(config), batch_size=None, num_workers=config.num_workers, prefetch_factor=2)
