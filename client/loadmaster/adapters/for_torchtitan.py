"""torchtitan: flat tokens, labels and positions; a position of 0 begins a document."""

from __future__ import annotations

from typing import Any

from ..batch import Microbatch
from .fields import as_int64, refuse_cp, required


def torchtitan(microbatch: Microbatch) -> dict[str, Any]:
    """What a torchtitan dataloader yields for one microbatch: its varlen metadata follows from `positions`.

    Its cross-entropy sums over labels that are not -100; divide by `batch.global_valid_tokens`.

    Returns:
        input, labels, positions: Shape (T,), int64; labels are shifted already, -100 where there is no loss.

    Raises:
        MeshError: The microbatch is cut for cp (torchtitan shards for context parallelism itself).
        BadRequestError: This pipeline stage gets no tokens or no labels.
    """
    refuse_cp(microbatch, "torchtitan", "it shards sequences itself, so give its cp ranks to tp here")
    return {
        "input": as_int64(required(microbatch, "tokens", "torchtitan")),
        "labels": as_int64(required(microbatch, "labels", "torchtitan")),
        "positions": as_int64(microbatch.position_ids),
    }
