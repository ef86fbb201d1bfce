"""A training job of paced ranks under a launcher: where one ends badly, all start again from their last checkpoint."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from . import paced_rank
from .commands import wait_until
from .rig import Rig

WORLD = 2
MAX_ATTEMPTS = 4
LOOK_S = 0.05


@dataclass(slots=True)
class Job:
    """Two ranks of a run. One thread calls its methods.

    Args:
        folder: Empty; holds what the ranks write.
        are_apart: Each rank is a process of its own; otherwise they are threads of one.
        step_s: What a step takes a rank.
    """

    rig: Rig
    run: str
    folder: Path
    are_apart: bool = False
    step_s: float = paced_rank.STEP_S
    attempts: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start all ranks from the last checkpoint that all of them have."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.attempts += 1
        step = self._last_saved()
        together = [str(rank) for rank in range(WORLD)]
        for ranks in together if self.are_apart else [",".join(together)]:
            place = (ranks, str(WORLD), str(self.folder), "-" if step is None else str(step), str(self.step_s))
            name = f"{self.run}-rank-{ranks}"
            self.processes.append(self.rig.spawn(name, paced_rank.__file__, self.rig.url, self.run, *place))

    def has_ended(self) -> bool:
        """Whether all ranks have read to the end; starts all of them again where one has ended badly."""
        codes = [process.poll() for process in self.processes]
        if any(codes):
            self.kill()
            assert self.attempts < MAX_ATTEMPTS, f"{self.run} did not end in {self.attempts} attempts: {codes}"
            self.start()
            return False
        return not any(code is None for code in codes)

    def kill(self) -> None:
        """End all ranks at once."""
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        self.processes.clear()

    def hold(self, at_step: int) -> None:
        """Let the ranks stand still as soon as they have so many steps."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "hold").write_text(str(at_step))

    def hold_saving(self) -> None:
        """Let the ranks stand still in the middle of saving, at `HOLD_SAVE_AT` or the next one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "hold-save").touch()

    def go_on(self) -> None:
        """Take that back."""
        for name in ("hold", "hold-save"):
            (self.folder / name).unlink(missing_ok=True)

    def is_held(self) -> bool:
        return all((self.folder / f"{rank}.held").exists() for rank in range(WORLD))

    def is_saving(self) -> bool:
        return all(any(self.folder.glob(f"{rank}.*.part")) for rank in range(WORLD))

    def reached(self) -> int:
        """Exclusive bound of the steps that all ranks have."""
        return min(
            max((line["step"] + 1 for line in self.lines(rank) if "step" in line), default=0) for rank in range(WORLD)
        )

    def lines(self, rank: int) -> list[dict[str, Any]]:
        """What a rank has written, whole lines only."""
        path = self.folder / f"{rank}.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def check(self, expected: Sequence[Sequence[str]]) -> None:
        """Every attempt of every rank goes on at its state, leaves out nothing, and has the bytes of the reference."""
        for rank in range(WORLD):
            step = 0
            for line in self.lines(rank):
                if "from" in line:
                    step = line["from"]
                    continue
                assert line["step"] == step, f"rank {rank} got step {line['step']} where {step} follows"
                assert line["digest"] == expected[step][rank], f"step {step} of rank {rank} has other bytes"
                step += 1
            assert step == len(expected), f"rank {rank} ended at step {step} of {len(expected)}"

    def longest_wait_s(self) -> float:
        """For one step, of all ranks, but for the first step of an attempt."""
        waits = [0.0]
        for rank in range(WORLD):
            lines = self.lines(rank)
            waits += [b["wait_s"] for a, b in pairwise(lines) if "step" in a and "step" in b]
        return max(waits)

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Poll, and be the launcher meanwhile."""
        wait_until(
            lambda: condition() or (self.has_ended() and condition()), timeout_s=timeout_s, what=what, every_s=LOOK_S
        )

    def _last_saved(self) -> int | None:
        saved = [{int(p.name.split(".")[1]) for p in self.folder.glob(f"{r}.*.state")} for r in range(WORLD)]
        return max(set.intersection(*saved), default=None)
