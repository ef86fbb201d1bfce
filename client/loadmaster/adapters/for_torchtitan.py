"""torchtitan: the pair of model inputs and labels that its trainer takes; a position of 0 begins a document."""

from __future__ import annotations

from typing import Any

from ..batch import Microbatch
from .fields import as_int64, refuse_cp, required


def torchtitan(microbatch: Microbatch, *, flat: bool = False) -> tuple[dict[str, Any], Any]:
    """What a torchtitan dataloader yields for one microbatch: its document masks follow from `positions`.

    The trainer hands everything in the dict to the model and nothing else, so labels stand beside it. Its losses sum
    over labels that are not -100 and divide by its own count of those, which is `batch.global_valid_tokens`.

    Args:
        microbatch: A whole one: cp 1, a stage with tokens and labels.
        flat: Leave out the axis of one sequence, as torchtitan after 0.3 wants it.

    Returns:
        A dict of `input` and `positions`, and labels. All have shape (1, T), flat (T,), and are int64; labels are
        shifted already, -100 where there is no loss.

    Raises:
        MeshError: The microbatch is cut for cp (torchtitan shards for context parallelism itself).
        BadRequestError: This pipeline stage gets no tokens or no labels.
    """
    refuse_cp(microbatch, "torchtitan", "it shards sequences itself, so give its cp ranks to tp here")
    fields = {
        "input": as_int64(required(microbatch, "tokens", "torchtitan")),
        "positions": as_int64(microbatch.position_ids),
    }
    labels = as_int64(required(microbatch, "labels", "torchtitan"))
    if flat:
        return fields, labels
    return {name: values.unsqueeze(0) for name, values in fields.items()}, labels.unsqueeze(0)
