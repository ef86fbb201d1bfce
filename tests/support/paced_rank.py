"""Ranks that train at a pace, in one process: they save their state every few steps, and stand still where told to.

    python paced_rank.py URL RUN RANKS WORLD_SIZE FOLDER STEP [STEP_S]

RANKS: such as `0,1`, a thread each; the process ends badly as soon as one of them does. In FOLDER each appends its
steps to RANK.jsonl, writes RANK.held while it stands still, from the step on that the file `hold` names, and saves
RANK.STEP.state as a trainer does: a .part that takes a while, then renamed. From step 8 on it stays at the .part while
there is a file `hold-save`. STEP: of the saved states to go on at, or `-`. STEP_S: what a step takes.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import loadmaster
from loadmaster_flight.wire.errors import LoadmasterError

STEP_S = 0.04
SAVE_EVERY = 4
SAVE_S = 0.25
HOLD_SAVE_AT = 8
LOOK_S = 0.02
TIMEOUT_S = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedRank:
    """One rank. `step`: of the state to go on at; None: from the beginning."""

    url: str
    run: str
    rank: int
    world_size: int
    folder: Path
    step: int | None
    step_s: float = STEP_S

    def train(self) -> None:
        """Read to the end of the stream."""
        resume = None if self.step is None else json.loads(self._state_file(self.step).read_text())
        place = {"run": self.run, "rank": self.rank, "world_size": self.world_size, "timeout_s": TIMEOUT_S}
        with (
            (self.folder / f"{self.rank}.jsonl").open("a") as out,
            loadmaster.connect(self.url, resume=resume, framework="numpy", **place) as stream,
        ):
            print(json.dumps({"from": 0 if resume is None else resume["step"]}), file=out, flush=True)
            asked_s = time.monotonic()
            for batch in stream:
                wait_s, step = time.monotonic() - asked_s, batch.step + 1
                line = {"step": batch.step, "digest": batch.digest(), "wait_s": round(wait_s, 4)}
                print(json.dumps(line), file=out, flush=True)
                time.sleep(self.step_s)
                if step % SAVE_EVERY == 0:
                    self._save(stream.state_dict(), step)
                self._hold(step)
                asked_s = time.monotonic()

    def _state_file(self, step: int) -> Path:
        return self.folder / f"{self.rank}.{step}.state"

    def _save(self, state: dict[str, object], step: int) -> None:
        """Write as slowly as a trainer that has a model to write too."""
        part = self._state_file(step).with_suffix(".part")
        part.write_text(json.dumps(state))
        while step >= HOLD_SAVE_AT and (self.folder / "hold-save").exists():
            time.sleep(LOOK_S)
        time.sleep(SAVE_S)
        part.replace(self._state_file(step))

    def _hold(self, step: int) -> None:
        """Stand still while the file is there."""
        hold, held = self.folder / "hold", self.folder / f"{self.rank}.held"
        try:
            while step >= int(hold.read_text()):
                held.touch()
                time.sleep(LOOK_S)
        except FileNotFoundError:
            pass


def run_rank(rank: PacedRank, codes: SimpleQueue[int]) -> None:
    """To its end, and tell the exit code."""
    code = 1
    try:
        rank.train()
        code = 0
    except LoadmasterError as error:
        print(f"rank {rank.rank}: {type(error).__name__}: {error}", file=sys.stderr)
        code = 2
    except Exception:
        traceback.print_exc()
    codes.put(code)


def main() -> int:
    url, run, ranks, world_size, folder, step, *pace = sys.argv[1:]
    place = {"url": url, "run": run, "world_size": int(world_size), "folder": Path(folder)}
    place |= {"step_s": float(pace[0])} if pace else {}
    codes = SimpleQueue[int]()
    numbers = [int(rank) for rank in ranks.split(",")]
    for rank in numbers:
        one = PacedRank(rank=rank, step=None if step == "-" else int(step), **place)
        threading.Thread(target=run_rank, args=(one, codes), daemon=True).start()
    return next((code for code in (codes.get() for _ in numbers) if code), 0)


if __name__ == "__main__":
    sys.exit(main())
