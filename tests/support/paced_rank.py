"""A rank that trains at a pace, as a process: it saves its state every few steps, and stands still where it is told to.

    python paced_rank.py URL RUN RANK WORLD_SIZE FOLDER STATE

In FOLDER it appends each step to RANK.jsonl, writes RANK.held while it stands still because of a file `hold`, and
saves RANK.STEP.state as a trainer does: a .part that takes a while, then renamed. From step 12 on it stays at the .part
while there is a file `hold-save`. STATE: a saved one, or `-`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import loadmaster
from loadmaster_flight.wire.errors import LoadmasterError

STEP_S = 0.04
SAVE_EVERY = 6
SAVE_S = 0.25
HOLD_AT = 8
HOLD_SAVE_AT = 12
LOOK_S = 0.02
TIMEOUT_S = 150.0


def train(url: str, run: str, rank: int, world_size: int, folder: Path, state: str) -> None:
    """Read to the end of the stream."""
    resume = None if state == "-" else json.loads(Path(state).read_text())
    place = {"run": run, "rank": rank, "world_size": world_size, "framework": "numpy", "timeout_s": TIMEOUT_S}
    with (folder / f"{rank}.jsonl").open("a") as out, loadmaster.connect(url, resume=resume, **place) as stream:
        print(json.dumps({"from": 0 if resume is None else resume["step"]}), file=out, flush=True)
        asked_s = time.monotonic()
        for batch in stream:
            wait_s = time.monotonic() - asked_s
            line = {"step": batch.step, "digest": batch.digest(), "wait_s": round(wait_s, 4)}
            print(json.dumps(line), file=out, flush=True)
            time.sleep(STEP_S)
            if (batch.step + 1) % SAVE_EVERY == 0:
                save(folder / f"{rank}.{batch.step + 1}.state", stream.state_dict(), batch.step + 1)
            if batch.step + 1 >= HOLD_AT:
                hold(folder, rank)
            asked_s = time.monotonic()


def save(path: Path, state: dict[str, object], step: int) -> None:
    """Write as slowly as a trainer that has a model to write too."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(state))
    while step >= HOLD_SAVE_AT and (path.parent / "hold-save").exists():
        time.sleep(LOOK_S)
    time.sleep(SAVE_S)
    part.replace(path)


def hold(folder: Path, rank: int) -> None:
    """Stand still while the file is there."""
    held = folder / f"{rank}.held"
    while (folder / "hold").exists():
        held.touch()
        time.sleep(LOOK_S)


def main() -> int:
    url, run, rank, world_size, folder, state = sys.argv[1:]
    try:
        train(url, run, int(rank), int(world_size), Path(folder), state)
    except LoadmasterError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
