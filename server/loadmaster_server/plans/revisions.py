"""Makes a planner follow the run's revisions, step by step."""

from __future__ import annotations

from loadmaster_flight.spec import ScheduleSpec, revised, schedule_faults
from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.wire.errors import SpecError

from ..faults import one_sentence
from ..planning.planner import StreamPlanner
from ..store import Definition, GenerationKey, StepMembership, Store, Timeline


class Revisions:
    """Revisions of the train stream; an evaluation pass has none, its steps are what the run was created with.

    Args:
        store: Has the revisions, and the publishes that wait for their step.
        key: Of the generation that is planned.
    """

    def __init__(self, store: Store, key: GenerationKey) -> None:
        self._store, self._run, self._is_train = store, key.run, key.stream == TRAIN

    def follow_logged(self, planner: StreamPlanner, logged: StepMembership | None) -> None:
        """Before a step is planned again: under the revision that the log has it under, whatever came after."""
        if self._is_train:
            timeline = self._store.schedules.timeline(self._run)
            self._to(planner, timeline.at(planner.step).number if logged is None else logged.revision)

    def follow(self, planner: StreamPlanner) -> int | None:
        """Before a step is planned for the first time: under the revision in force, one that waited for it included.

        Returns:
            The step that the next publish waits for: before it is planned, this has to be called again.

        Raises:
            MeshError: Its steps cannot be dealt to the mesh; names the numbers.
        """
        if not self._is_train:
            return None

        def check(schedule: ScheduleSpec, step: int) -> None:
            spec = self._store.runs.definition(self._run).spec
            if faults := list(schedule_faults(spec, schedule, step)):
                raise SpecError(f"schedule: {one_sentence(faults)}")
            planner.check(revised(spec, schedule))

        due = self._store.schedules.next_due(self._run)
        if due is not None and due <= planner.step:
            self._store.schedules.activate_due(self._run, planner.step, check)
            due = self._store.schedules.next_due(self._run)
        self._to(planner, self._store.schedules.timeline(self._run).at(planner.step).number)
        return due

    def have_moved(self, planner: StreamPlanner) -> bool:
        """Whether the planner is at work on a step under a revision that has none of it any more."""
        return self._is_train and self._store.schedules.timeline(self._run).at(planner.step).number != planner.revision

    def _to(self, planner: StreamPlanner, number: int) -> None:
        if planner.revision != number:
            timeline = self._store.schedules.timeline(self._run)
            known = known_at(self._store.runs.definition(self._run), timeline, number)
            planner.follow(revised(known.spec, timeline.revisions[number].schedule), number, known.lanes)


def known_at(definition: Definition, timeline: Timeline, number: int) -> Definition:
    """The run as a revision has it: a source that was added is there once it, or one added later, was named."""
    named = timeline.named_until(number)
    last = max(i for i, name in enumerate(definition.spec.source_names) if i < definition.num_created or name in named)
    return definition.first(last + 1)
