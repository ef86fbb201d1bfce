"""Ranks of a training job as threads: each fetches its steps and keeps what tests compare."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

import loadmaster
from loadmaster.documents import documents_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One rank's step."""

    step: int
    sample_ids: list[str]
    digest: str


def fetch_rank(
    url: str, *, rank: int, world_size: int, steps: int | None = None, jitter_s: float = 0.0, **options: object
) -> list[Fetched]:
    """All steps of one rank (or the first `steps`), with random pauses up to `jitter_s` between them."""
    rng, out = random.Random(rank), []
    with loadmaster.connect(url, rank=rank, world_size=world_size, framework="numpy", **options) as stream:
        for batch in stream:
            out.append(Fetched(step=batch.step, sample_ids=list(batch.sample_ids), digest=batch.digest()))
            if jitter_s:
                time.sleep(rng.uniform(0, jitter_s))
            if steps is not None and len(out) == steps:
                break
    return out


def fetch_all(url: str, *, world_size: int, **options: object) -> list[list[Fetched]]:
    """Every rank's steps, fetched at the same time."""
    with ThreadPoolExecutor(world_size) as pool:
        jobs = [pool.submit(fetch_rank, url, rank=rank, world_size=world_size, **options) for rank in range(world_size)]
        return [job.result() for job in jobs]


def ids_per_step(ranks: list[list[Fetched]]) -> list[list[str]]:
    """The sorted multiset of sample ids of every step, all ranks together; all ranks must have the same steps."""
    for rank in ranks:
        assert [f.step for f in rank] == [f.step for f in ranks[0]]
    return [sorted(sid for rank in ranks for sid in rank[i].sample_ids) for i in range(len(ranks[0]))]


class Stutter(threading.Thread):
    """Stops and continues random processes for a few milliseconds: delays anywhere, by real signals."""

    def __init__(self, pids: list[int], *, seed: int) -> None:
        super().__init__(daemon=True)
        self._pids, self._rng, self._stop_event = pids, random.Random(seed), threading.Event()

    def run(self) -> None:
        while not self._stop_event.wait(self._rng.uniform(0.0, 0.05)):
            pid = self._rng.choice(self._pids)
            try:
                os.kill(pid, signal.SIGSTOP)
                self._stop_event.wait(self._rng.uniform(0.0, 0.08))
            finally:
                os.kill(pid, signal.SIGCONT)

    def __enter__(self) -> Stutter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_event.set()
        self.join(5)


def ids_of(record: pa.RecordBatch, source_names: list[str]) -> list[str]:
    """Sample ids of a wire batch."""
    return [sid for documents in documents_of(record) for sid in documents.sample_ids(source_names)]
