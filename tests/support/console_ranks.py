"""All ranks of a run as threads of one process that read at a pace, as somebody who watches the console would see it.

    python console_ranks.py URL RUN WORLD_SIZE FOLDER

Each rank appends a line a step to FOLDER/RANK.jsonl: {step, digest, ids, tokens}; `tokens` by microbatch.
FOLDER/pace holds the seconds of a step; a file FOLDER/hold lets all stand still. They end when standard input does.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import loadmaster

LOOK_S = 0.05
TIMEOUT_S = 60.0
DEFAULT_PACE_S = 1.0


def read(url: str, run: str, rank: int, world_size: int, folder: Path, stop: threading.Event) -> None:
    """One rank, to the end of the stream or until told to stop."""
    place = {"run": run, "rank": rank, "world_size": world_size, "framework": "numpy", "timeout_s": TIMEOUT_S}
    with (folder / f"{rank}.jsonl").open("a") as out, loadmaster.connect(url, **place) as stream:
        for batch in stream:
            tokens = [
                microbatch.tokens.tolist() for microbatch in batch.microbatches() if microbatch.tokens is not None
            ]
            line = {"step": batch.step, "digest": batch.digest(), "ids": list(batch.sample_ids), "tokens": tokens}
            print(json.dumps(line), file=out, flush=True)
            if _rest(folder, stop):
                return


def _rest(folder: Path, stop: threading.Event) -> bool:
    """Take as long as a step does; whether it is time to stop."""
    pace = folder / "pace"
    until_s = time.monotonic() + (float(pace.read_text()) if pace.exists() else DEFAULT_PACE_S)
    while time.monotonic() < until_s or (folder / "hold").exists():
        if stop.wait(LOOK_S):
            return True
    return stop.is_set()


def main() -> int:
    url, run, world_size, folder = sys.argv[1:]
    stop, failures = threading.Event(), list[int]()

    def one(rank: int) -> None:
        try:
            read(url, run, rank, int(world_size), Path(folder), stop)
        except Exception as error:
            failures.append(rank)
            print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            stop.set()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(int(world_size))]
    for thread in threads:
        thread.start()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    for thread in threads:
        thread.join()
    return 2 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
