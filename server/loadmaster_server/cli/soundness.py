"""What a spec that is right field by field may still get wrong as a whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from loadmaster_flight.spec import BatchSpec, RunSpec
from loadmaster_flight.wire.errors import SpecError
from loadmaster_server.freezing import joined

BUILT_BYTES_PER_TOKEN = 8
"""An assembled step holds token and label, int32 each."""
MEASURED_BYTES_PER_TOKEN = 4
STEPS_BETWEEN_KNOTS = 64


def refuse_small_budgets(spec: RunSpec) -> None:
    """A buffer that does not hold one step would stop the run at that step.

    Raises:
        SpecError: build_bytes or window_bytes is below the largest step that the schedule reaches.
    """
    step, num_tokens = largest_step(spec.batch)
    per_token = {"build_bytes": BUILT_BYTES_PER_TOKEN, "window_bytes": MEASURED_BYTES_PER_TOKEN}
    faults = []
    for name, size_bytes in per_token.items():
        budget, needed = getattr(spec.budgets, name), num_tokens * size_bytes
        if budget < needed:
            rule = f"must hold one step, {needed} bytes for the {num_tokens} tokens of step {step}, got {budget}"
            faults.append(SpecError(f"budgets.{name}: {rule}", field=f"budgets.{name}"))
    if faults:
        raise joined(list(faults))


def largest_step(batch: BatchSpec) -> tuple[int, int]:
    """The step with the most tokens, and how many that are, looking at knots and at some steps between them.

    One ramp alone is largest at a knot; where one rises while the other falls, their product may not be.
    """
    tokens = {step: batch.num_bins_at(step) * batch.capacity_at(step) for step in _telling_steps(batch)}
    step = max(tokens, key=lambda s: (tokens[s], -s))
    return step, tokens[step]


def _telling_steps(batch: BatchSpec) -> set[int]:
    knots = sorted({knot.at for ramp in (batch.seq_len, batch.microbatches) for knot in ramp.knots} | {0})
    steps = set(knots)
    for start, stop in itertools.pairwise(knots):
        steps |= {start + (stop - start) * i // STEPS_BETWEEN_KNOTS for i in range(STEPS_BETWEEN_KNOTS)}
    return steps


def warnings_of(spec: RunSpec) -> list[str]:
    """What does not stop a run from being created but will surprise later; each names field and value."""
    return list(_idle_sources(spec))


def _idle_sources(spec: RunSpec) -> Iterator[str]:
    evaluated = {name for evaluation in spec.evaluation.values() for name in evaluation.sources}
    for name in spec.sources:
        ramp = spec.mixture.weights.get(name)
        if name not in evaluated and (ramp is None or not any(knot.value > 0 for knot in ramp.knots)):
            yield f"mixture.weights.{name}: has weight 0 at every step and no evaluation names it: it is never read"
