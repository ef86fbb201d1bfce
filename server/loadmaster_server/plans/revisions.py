"""Makes a planner follow the run's revisions, step by step."""

from __future__ import annotations

from loadmaster_flight.spec import RunSpec, ScheduleSpec, revised, schedule_faults
from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.wire.errors import SpecError

from ..planning.planner import StreamPlanner
from ..store import GenerationKey, StepMembership, Store


class Revisions:
    """Revisions of the train stream; an evaluation pass has none, its steps are what the run was created with.

    Args:
        store: Has the revisions, and the publishes that wait for their step.
        key: Of the generation that is planned.
    """

    def __init__(self, store: Store, key: GenerationKey) -> None:
        self._store, self._run, self._is_train = store, key.run, key.stream == TRAIN
        self._spec = store.runs.definition(key.run).spec

    def follow_logged(self, planner: StreamPlanner, logged: StepMembership | None) -> None:
        """Before a step is planned again: under the revision that the log has it under, whatever came after."""
        if self._is_train:
            timeline = self._store.schedules.timeline(self._run)
            self._to(planner, timeline.at(planner.step).number if logged is None else logged.revision)

    def follow(self, planner: StreamPlanner) -> None:
        """Before a step is planned for the first time: under the revision in force, one that waited for it included.

        Raises:
            MeshError: Its steps cannot be dealt to the mesh; names the numbers.
        """
        if not self._is_train:
            return

        def check(schedule: ScheduleSpec, step: int) -> None:
            if faults := list(schedule_faults(self._spec, schedule, step)):
                raise SpecError(f"schedule: {'; '.join(faults)}")
            planner.check(self._revised(schedule))

        self._store.schedules.activate_due(self._run, planner.step, check)
        self._to(planner, self._store.schedules.timeline(self._run).at(planner.step).number)

    def _to(self, planner: StreamPlanner, number: int) -> None:
        if planner.revision != number:
            schedule = self._store.schedules.timeline(self._run).revisions[number].schedule
            planner.follow(self._revised(schedule), number)

    def _revised(self, schedule: ScheduleSpec) -> RunSpec:
        return revised(self._spec, schedule)
