"""The part of a run that revisions may change while it trains: shares, G and C."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, ValidationError

from .batch import BatchSpec
from .model import SpecModel, near
from .run import MixtureSpec, Name, RunSpec
from .schedule import Ramp


def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


class ScheduleSpec(SpecModel):
    """A run's curriculum as one revision has it: whole, not a change of another one."""

    weights: dict[Name, Ramp]
    """Shares of the sources over steps; a source of the run that is not named has none."""
    microbatches: Ramp
    """G over steps, rounded down to the run's g_multiple."""
    seq_len: Ramp
    """Tokens of a microbatch over steps, rounded down to the run's c_multiple."""
    retired: Annotated[tuple[Name, ...], AfterValidator(_in_order)] = ()
    """Sources that are drawn from no more, whatever their weight says; what is queued of them is still served."""

    def live_weights(self) -> dict[str, Ramp]:
        """Weights of the sources that are not retired."""
        return {name: ramp for name, ramp in self.weights.items() if name not in self.retired}


def schedule_of(spec: RunSpec) -> ScheduleSpec:
    """The schedule that a run was created with."""
    return ScheduleSpec(weights=spec.mixture.weights, microbatches=spec.batch.microbatches, seq_len=spec.batch.seq_len)


def revised(spec: RunSpec, schedule: ScheduleSpec) -> RunSpec:
    """A run's spec with another schedule, for steps at which that is in force.

    It may be one that could not be created: its shares need not be positive at steps that are over.

    Raises:
        ValueError: The batch cannot be so; names the rule.
    """
    sizes = {"microbatches": schedule.microbatches, "seq_len": schedule.seq_len}
    batch = BatchSpec.model_validate({**dict(spec.batch), **sizes})
    mixture = MixtureSpec(unit=spec.mixture.unit, weights=schedule.live_weights())
    return spec.model_copy(update={"batch": batch, "mixture": mixture})


def schedule_faults(spec: RunSpec, schedule: ScheduleSpec, from_step: int) -> Iterator[str]:
    """What forbids a schedule to be in force from a step on, a sentence each; nothing where all is well."""
    for field, names in (("weights", schedule.weights), ("retired", schedule.retired)):
        for name in names:
            if name not in spec.sources:
                yield f"{field}.{name} names no source; {near(name, spec.sources)}"
    ramps = schedule.live_weights().values()
    later = {knot.at for ramp in ramps for knot in ramp.knots if knot.at > from_step}
    for step in sorted({from_step, *later}):
        if not any(ramp.at(step) > 0 for ramp in ramps):
            yield f"weights must have a positive weight at every step from {from_step} on, all are 0 at step {step}"
            break
    try:
        revised(spec, schedule)
    except ValidationError as error:
        yield from (str(fault["msg"]).removeprefix("Value error, ") for fault in error.errors())


def least_row_len(batch: BatchSpec, from_step: int) -> int:
    """The shortest row from a step on: between two knots a curve has no value that is less than both of theirs."""
    later = (knot.at for knot in batch.seq_len.knots if knot.at > from_step)
    return min(batch.row_len_at(at) for at in itertools.chain((from_step,), later))
