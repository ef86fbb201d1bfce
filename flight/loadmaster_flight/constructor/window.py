"""Which built steps a constructor keeps for its ranks, and which one it builds next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from loadmaster_flight.wire.skipping import Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltStep:
    """One assembled step: a RecordBatch for each rank that is served here. Memory that ranks share counts once."""

    step: int
    batches: Mapping[int, pa.RecordBatch]
    build_us: int = 0
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size_bytes", _size_bytes(self.batches.values()))


class StepWindow:
    """Keeps steps [low, low + build_ahead), where low is the least position of its ranks. Callers hold one lock.

    A rank's position is what it last opened a stream at, moved on by what it acknowledges. A step goes when every
    rank's position is behind it; when a rank opens further back, missing steps are built again.

    Args:
        ranks: Global ranks.
        first_step: Where all ranks are before they are heard of.
        build_ahead: Steps kept, at most.
        budget_bytes: Steps after the first are built only while they fit. One step is always built: no deadlock.
        skip: Steps that are not built: who has consumed those before them has consumed them too.
    """

    def __init__(
        self, ranks: list[int], *, first_step: int, build_ahead: int, budget_bytes: int, skip: Skip | None = None
    ) -> None:
        self.skip = skip or Skip()
        self._position = dict.fromkeys(ranks, self.skip.past(first_step))
        self._acknowledged = dict.fromkeys(ranks, self.skip.past(first_step))
        self._build_ahead, self._budget_bytes = max(1, build_ahead), budget_bytes
        self._built: dict[int, BuiltStep] = {}
        self._last_size_bytes = 0
        self.end: int | None = None
        """Number of steps of the stream, once it is known."""

    @property
    def low(self) -> int:
        return min(self._position.values())

    @property
    def acknowledged(self) -> int:
        """All ranks have consumed the steps before this one."""
        return min(self._acknowledged.values())

    @property
    def acknowledged_by_rank(self) -> dict[int, int]:
        """Of each rank: it has consumed the steps before this one."""
        return dict(self._acknowledged)

    @property
    def size_bytes(self) -> int:
        return sum(built.size_bytes for built in self._built.values())

    @property
    def num_built(self) -> int:
        return len(self._built)

    def ahead(self, num_steps: int) -> int:
        """Exclusive bound of the first `num_steps` served steps from `low` on."""
        return self.skip.ahead(self.low, num_steps)

    def slowest(self) -> list[int]:
        """The ranks that hold the window back."""
        return [rank for rank, position in self._position.items() if position == self.low]

    def open(self, rank: int, step: int) -> None:
        """The rank reads from `step` on, and has all steps before it."""
        self._position[rank] = self.skip.past(step)
        self._drop()

    def acknowledge(self, rank: int, step: int) -> bool:
        """The rank has consumed the steps before `step`; returns whether that is news, older ones are ignored."""
        step = self.skip.past(step)
        is_news = step > self._acknowledged[rank]
        self._acknowledged[rank] = max(self._acknowledged[rank], step)
        self._position[rank] = max(self._position[rank], step)
        self._drop()
        return is_news

    def get(self, step: int) -> BuiltStep | None:
        return self._built.get(step)

    def is_over(self, step: int) -> bool:
        """Whether the stream is known to end before `step`."""
        return self.end is not None and step >= self.end

    def put(self, built: BuiltStep) -> None:
        """Keep a step, unless every rank has gone past it meanwhile."""
        self._last_size_bytes = built.size_bytes
        if built.step >= self.low:
            self._built[built.step] = built

    def next_missing(self) -> int | None:
        """The step to build next; None when the window or the budget is full, or the stream is over."""
        low = self.low
        full = self.ahead(self._build_ahead)
        stop = full if self.end is None else min(full, self.end)
        step = next((s for s in self.skip.served(low, stop) if s not in self._built), None)
        if step is None or step == low:
            return step
        return step if self.size_bytes + self._last_size_bytes <= self._budget_bytes else None

    def _drop(self) -> None:
        low = self.low
        for step in [s for s in self._built if s < low]:
            del self._built[step]


def _size_bytes(batches: Iterable[pa.RecordBatch]) -> int:
    once = {id(batch): batch for batch in batches}.values()
    buffers = (buffer for batch in once for column in batch.columns for buffer in column.buffers())
    return sum({buffer.address: buffer.size for buffer in buffers if buffer is not None}.values())
