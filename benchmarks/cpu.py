"""CPU seconds of sets of processes, read from /proc, and waiting until they are quiet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Iterable[int]) -> float:
    """User and system CPU seconds so far of the given processes and the children they have waited for."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += sum(int(x) for x in fields[11:15])
    return total / _TICKS


def when_quiet(pids: Callable[[], Iterable[int]], *, limit_s: float = 60.0, share: float = 0.05) -> float:
    """CPU seconds once the processes use less than `share` of a core over 0.4 s: buffers are full, work is done."""
    until_s = time.monotonic() + limit_s
    before = cpu_s(pids())
    while time.monotonic() < until_s:
        time.sleep(0.4)
        now = cpu_s(pids())
        if now - before < share * 0.4:
            return now
        before = now
    return before


def children_of(pid: int) -> list[int]:
    """Direct children of a process."""
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
