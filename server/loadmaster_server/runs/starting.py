"""Where a new generation can start: which generation it goes on from, and what of that one it replays."""

from __future__ import annotations

from dataclasses import dataclass

from loadmaster_flight.wire.control import JoinRequest
from loadmaster_flight.wire.errors import ConflictError, GoneError

from ..store import GenerationRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The generation that a new one goes on from (-1: none), and until where its steps are replayed (None: not)."""

    parent: int = -1
    replay_until: int | None = None


def start_of(lineage: list[GenerationRecord], request: JoinRequest) -> Start:
    """Resolve what a rank resumes from.

    Args:
        lineage: The generation that the request names, its parent, and so on.
        request: Of any rank; all are alike.

    Raises:
        ConflictError: The named generation never bound `request.step`, or `request.skip` reaches beyond its end.
        GoneError: Neither the step nor what it could be planned from is held any more; names the first one that is.
    """
    named = lineage[0]
    if request.step > named.bound:
        raise ConflictError(
            f"step must be one that {named.key} reached, at most {named.bound}, got {request.step}", bound=named.bound
        )
    if request.skip and named.end_step is not None and request.skip[1] > named.end_step:
        raise ConflictError(
            f"skip must lie within the stream's {named.end_step} steps, got {request.skip}", end_step=named.end_step
        )
    at = next((i for i, g in enumerate(lineage) if g.first_step <= request.step), len(lineage) - 1)
    parent = lineage[at]
    if request.step < parent.held_from:
        raise GoneError(
            f"step {request.step} of {parent.key} is not held any more: go on from step {parent.held_from} or later",
            held_from=parent.held_from,
        )
    # Beyond the first step of its child the parent's log is a branch that was given up.
    until = parent.bound if at == 0 else min(parent.bound, lineage[at - 1].first_step)
    return Start(parent=parent.key.generation, replay_until=max(request.step, until) if request.replay else None)
