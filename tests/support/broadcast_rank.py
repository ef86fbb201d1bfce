"""One rank of a torch process group, as a process: `broadcast_rank.py RANK WORLD_SIZE STORE_FILE`.

For each line `URL STEPS` of its input it connects, wraps its stream in `loadmaster.broadcast` with the group of all
ranks, and prints one JSON line a step; one more line says how it ended, and the stream's state.
"""

from __future__ import annotations

import json
import sys

import torch.distributed as dist

import loadmaster
from loadmaster_flight.wire.errors import LoadmasterError


def main(rank: int, world_size: int, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    for line in sys.stdin:
        url, steps = line.split()
        join(url, rank, world_size, int(steps))
    dist.barrier()
    dist.destroy_process_group()


def join(url: str, rank: int, world_size: int, steps: int) -> None:
    connected = loadmaster.connect(url, rank=rank, world_size=world_size, timeout_s=30)
    with loadmaster.broadcast(connected, dist.group.WORLD) as stream:
        end = read(stream, steps)
    print(json.dumps({"end": end, "state": stream.state_dict()}), flush=True)


def read(stream: loadmaster.Stream, steps: int) -> str:
    try:
        for _ in range(steps):
            batch = next(stream)
            print(json.dumps({"step": batch.step, "digest": batch.digest(), "ids": batch.sample_ids}), flush=True)
    except StopIteration:
        return "over"
    except LoadmasterError as error:
        return f"{error.code}: {error.message}"
    return "enough"


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
