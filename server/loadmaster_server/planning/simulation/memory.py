"""Host memory that the data of a run takes in each role: estimates from sizes and budgets.

# S = sources
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadmaster_flight.spec import BatchSpec, BudgetSpec

ROW_BYTES = 120
"""A measured row in the planner: 12 integers, two references and its share of lists."""
PIECE_BYTES = 9 * 8
"""A piece of a plan that is kept: its columns."""
ROWS_AHEAD_STEPS = 2
TOKEN_BYTES = 8
"""Token and label of a batch, 32 bits each."""
TENSOR_BYTES = 24
"""Token, label and position in a trainer, 64 bits each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Bytes of data per process (planner, constructor, trainer rank) or of all loaders together. Python, its libraries
    and caches of compiled code come on top: 100 to 200 MB a process."""

    planner: int
    loaders: int
    constructor: int
    trainer_rank: int

    def to_tree(self) -> dict[str, int]:
        return {
            "planner_bytes": self.planner,
            "loaders_bytes": self.loaders,
            "constructor_bytes": self.constructor,
            "trainer_rank_bytes": self.trainer_rank,
        }


def host_memory(
    batch: BatchSpec,
    budgets: BudgetSpec,
    *,
    pieces_per_step: float,
    blocks: Sequence[tuple[int, int]],
    step: int,
    dp: int,
    cp: int,
    prefetch: int = 2,
) -> HostMemory:
    """Estimate for one planner, one constructor and a budget's worth of loaders.

    Args:
        pieces_per_step: Mean of the simulated steps.
        blocks: Per source its lanes and its block_bytes: one block a lane is open.
        step: Sizes of a batch are those of this step.
        prefetch: Steps that a trainer fetches ahead.
    """
    step_tokens = batch.num_bins_at(step) * batch.capacity_at(step)
    ahead = budgets.plan_ahead * PIECE_BYTES + ROWS_AHEAD_STEPS * ROW_BYTES
    return HostMemory(
        planner=int(pieces_per_step * ahead),
        loaders=sum(lanes * block_bytes for lanes, block_bytes in blocks) + budgets.window_bytes,
        constructor=min(budgets.build_bytes, budgets.build_ahead * step_tokens * TOKEN_BYTES),
        trainer_rank=(prefetch + 1) * step_tokens * TENSOR_BYTES // (dp * cp),
    )
