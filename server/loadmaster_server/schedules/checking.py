"""What forbids a schedule to be in force from a step on."""

from __future__ import annotations

from loadmaster_flight.spec import RunSpec, ScheduleSpec, least_row_len, revised, schedule_faults
from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.wire.errors import ConflictError, SpecError

from ..faults import one_sentence
from ..planning.place_tree import ClientPlaceTree
from ..planning.rules import check_mesh, rules_of
from ..store import Room, Timeline


def check_step(spec: RunSpec, step: int) -> None:
    """Refuse a step that never comes.

    Raises:
        ConflictError: The run ends before it; carries its end.
    """
    end = spec.until.steps
    if end is not None and step >= end:
        text = f"the run ends before step {end}: there is nothing to change from step {step} on"
        raise ConflictError(text, end_step=end)


def check_schedule(spec: RunSpec, schedule: ScheduleSpec, timeline: Timeline, from_step: int, room: Room) -> None:
    """Refuse a schedule that the run cannot go on with.

    Args:
        spec: What the run was created with.
        timeline: Its revisions so far.
        room: Has the mesh that the steps are dealt to.

    Raises:
        SpecError: It names an unknown source, leaves a step without any, or makes rows shorter than samples with media
            that may be queued; names all faults.
        MeshError: Its steps cannot be dealt to the mesh; names the numbers.
        ConflictError: The run ends before the step.
    """
    check_step(spec, from_step)
    if faults := list(schedule_faults(spec, schedule, from_step)):
        raise SpecError(f"schedule: {one_sentence(faults)}")
    after = revised(spec, schedule)
    own = spec.mesh
    mesh = room.mesh or {"pp": own.pp, "dp": own.dp if isinstance(own.dp, int) else 1, "cp": own.cp, "tp": own.tp}
    check_mesh(rules_of(after, TRAIN), ClientPlaceTree.of(mesh))
    _check_media(spec, after, timeline, from_step)


def _check_media(spec: RunSpec, after: RunSpec, timeline: Timeline, from_step: int) -> None:
    """Samples with media are never cut, and those that are queued were let in by the rows that were to come."""
    if not any(source.transform.has_media for source in spec.sources.values()):
        return
    promised = least_row_len(revised(spec, timeline.at(from_step).schedule).batch, from_step)
    least = least_row_len(after.batch, from_step)
    if least < promised:
        raise SpecError(
            f"schedule: seq_len must stay at {promised} or more from step {from_step} on, got {least}: "
            "queued samples with media are never cut"
        )
