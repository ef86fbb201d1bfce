"""What a planner still needs to know before it can go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Measure `rows_per_lane` more rows of each lane of `cursors`: [lane, unit_index, block_index, next_pos].

    A demand is a plain request: it can be split by lanes, answered in any number of batches, and repeated.
    """

    source: int
    epoch: int
    cursors: list[list[int]]
    rows_per_lane: int


class NeedMetadata(Exception):
    """The next step cannot be planned before these demands are answered. Nothing has changed."""

    def __init__(self, demands: list[Demand]) -> None:
        super().__init__(f"metadata of sources {sorted({demand.source for demand in demands})}")
        self.demands = demands
