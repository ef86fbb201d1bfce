"""Publishes revisions, and says what they would do."""

from __future__ import annotations

from loadmaster_flight.spec import Knot, Ramp, ScheduleSpec
from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.wire.errors import ConflictError, LoadmasterError, NotFoundError, StaleError

from ..store import (
    Action,
    Change,
    DraftRecord,
    Published,
    RevisionRecord,
    Room,
    ScheduledState,
    Store,
    StreamKey,
    Timeline,
)
from .checking import check_schedule, check_step
from .drafting import DraftService, merge_draft
from .impact import impact
from .schemas import (
    ActRequest,
    AuditView,
    PreviewReply,
    PreviewRequest,
    PublishReply,
    PublishRequest,
    RetimeRequest,
    RevisionHead,
    RevisionView,
    ScheduledHead,
    ScheduledView,
    ScheduleView,
    StretchView,
)
from .stocks import known_before
from .views import audit_view, headed, revision_view, scheduled_view

WAITING = (ScheduledState.PENDING, ScheduledState.SUSPENDED)
MAX_PAGE = 500


class ScheduleService:
    """Everything that HTTP can ask of schedules. Any thread may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.drafts = DraftService(store)

    def view(self, run: str) -> ScheduleView:
        """The newest schedule, which steps can still be changed, and what waits for its step."""
        timeline, room = self._store.schedules.timeline(run), self._store.schedules.room(run)
        waiting = [record for record in self._store.schedules.scheduled(run) if record.state in WAITING]
        spec = self._store.runs.definition(run).spec
        return ScheduleView(
            run=run,
            revision=timeline.newest.number,
            schedule=timeline.newest.schedule,
            first_free=room.first_free,
            planned=room.planned,
            end_step=room.end_step,
            timeline=[StretchView(from_step=step, revision=r.number) for step, r in timeline.stretches()],
            scheduled=[headed(scheduled_view(record), ScheduledHead) for record in waiting],
            sources=list(spec.source_names),
            g_multiple=spec.batch.g_multiple,
            c_multiple=spec.batch.c_multiple or spec.batch.align,
            rows=spec.batch.rows,
            until_steps=spec.until.steps,
        )

    def revisions(self, run: str, *, before: int | None, limit: int) -> list[RevisionHead]:
        """A page of revisions without their schedules, newest first; `before`: the last number of the page before."""
        timeline = self._store.schedules.timeline(run)
        numbers = range(len(timeline.revisions) if before is None else min(before, len(timeline.revisions)))
        page = list(reversed(numbers))[: min(limit, MAX_PAGE)]
        return [headed(revision_view(timeline, timeline.revisions[number]), RevisionHead) for number in page]

    def revision(self, run: str, number: int) -> RevisionView:
        """One revision."""
        timeline = self._store.schedules.timeline(run)
        return revision_view(timeline, _revision(timeline, number))

    def publish(self, run: str, author: str, request: PublishRequest, base: int) -> PublishReply:
        """Publish a schedule that was made from revision `base`. Whatever goes wrong, the author's draft has it.

        Raises:
            StaleError: The newest revision is another one: carries it, and the fields in conflict.
            ConflictError: The step is bound; carries the first one that is not.
            SpecError, MeshError: The run cannot go on with it.
        """
        spec = self._store.runs.definition(run).spec
        schedule = request.schedule or self._store.drafts.get(run, author).schedule

        def decide(timeline: Timeline, step: int, room: Room) -> ScheduleSpec:
            check_schedule(spec, schedule, timeline, step, room)
            return schedule

        change = Change(author=author, message=request.message, base=base, at_step=request.at_step, closes_draft=True)
        try:
            return self._published(run, self._store.schedules.publish(run, change, decide))
        except LoadmasterError as error:
            draft = self._keep(run, author, request, base)
            if isinstance(error, StaleError):
                raise self._stale(run, error, draft) from error
            raise

    def restore(self, run: str, author: str, number: int, request: ActRequest, base: int) -> PublishReply:
        """A new revision with the schedule of an old one."""
        spec = self._store.runs.definition(run).spec

        def decide(timeline: Timeline, step: int, room: Room) -> ScheduleSpec:
            schedule = _revision(timeline, number).schedule
            check_schedule(spec, schedule, timeline, step, room)
            return schedule

        change = _change(author, request, Action.RESTORED, base)
        return self._published(run, self._store.schedules.publish(run, change, decide))

    def hold(self, run: str, author: str, request: ActRequest, base: int | None) -> PublishReply:
        """A new revision in which all shares stay what they are at its first step; G and C keep their curves."""
        change = _change(author, request, Action.HELD, base)
        return self._published(run, self._store.schedules.publish(run, change, _held))

    def scheduled(self, run: str) -> list[ScheduledHead]:
        """Publishes that wait for their step, or did, newest first, without their schedules."""
        self._store.schedules.timeline(run)
        return [headed(scheduled_view(record), ScheduledHead) for record in self._store.schedules.scheduled(run)]

    def one_scheduled(self, run: str, number: int) -> ScheduledView:
        """One of them."""
        found = [record for record in self._store.schedules.scheduled(run) if record.number == number]
        if not found:
            raise NotFoundError(f"run {run!r} has no scheduled publish {number}")
        return scheduled_view(found[0])

    def cancel(self, run: str, author: str, number: int) -> ScheduledView:
        """Take a scheduled publish back."""
        return scheduled_view(self._store.schedules.cancel(run, number, author))

    def retime(self, run: str, author: str, number: int, request: RetimeRequest) -> ScheduledView:
        """Let a scheduled publish wait for another step."""
        check_step(self._store.runs.definition(run).spec, request.at_step)
        return scheduled_view(self._store.schedules.retime(run, number, author, request.at_step))

    def preview(self, run: str, request: PreviewRequest) -> PreviewReply:
        """What a schedule would do; nothing changes.

        Raises:
            ConflictError: Its step is bound; carries the first one that is not.
            SpecError, MeshError: The run could not go on with it.
        """
        spec, timeline = self._store.runs.definition(run).spec, self._store.schedules.timeline(run)
        room = self._store.schedules.room(run)
        step = room.first_free if request.at_step is None else request.at_step
        if step < room.first_free:
            text = f"at_step must be a step that is not bound yet, from {room.first_free} on, got {step}"
            raise ConflictError(text, first_free=room.first_free)
        check_schedule(spec, request.schedule, timeline, step, room)
        known = known_before(self._store, spec, timeline, step)
        return impact(spec, timeline, request.schedule, known, step, request.until_step, request.max_repeats)

    def audit(
        self, *, run: str | None, author: str | None, action: str | None, before: int | None, limit: int
    ) -> list[AuditView]:
        """A page of the audit log, newest first."""
        page = self._store.audit.read(
            run=run, author=author, action=action, before=before, limit=max(1, min(limit, MAX_PAGE))
        )
        return [audit_view(record) for record in page]

    def _keep(self, run: str, author: str, request: PublishRequest, base: int) -> DraftRecord | None:
        """The draft of a publish that was refused; None where its base is none of the run's."""
        timeline = self._store.schedules.timeline(run)
        if request.schedule is None:
            return self._store.drafts.get(run, author)
        if not 0 <= base <= timeline.newest.number:
            return None
        return self._store.drafts.save(run, author, base=base, schedule=request.schedule)

    def _stale(self, run: str, error: StaleError, draft: DraftRecord | None) -> StaleError:
        timeline = self._store.schedules.timeline(run)
        conflicts = merge_draft(timeline, draft).conflicts if draft else ()
        return StaleError(
            error.message,
            current=timeline.newest.number,
            revision=revision_view(timeline, timeline.newest).model_dump(mode="json"),
            conflicts=[conflict.field for conflict in conflicts],
            draft_version=draft.version if draft else None,
        )

    def _published(self, run: str, published: Published) -> PublishReply:
        self._store.bulletin.post(str(StreamKey(run=run, stream=TRAIN)))
        timeline = self._store.schedules.timeline(run)
        return PublishReply(
            revision=revision_view(timeline, published.revision) if published.revision else None,
            scheduled=scheduled_view(published.scheduled) if published.scheduled else None,
        )


def _change(author: str, request: ActRequest, action: Action, base: int | None) -> Change:
    return Change(author=author, message=request.message, action=action, base=base, at_step=request.at_step)


def _revision(timeline: Timeline, number: int) -> RevisionRecord:
    if not 0 <= number <= timeline.newest.number:
        raise NotFoundError(f"there is no revision {number}: the newest is {timeline.newest.number}")
    return timeline.revisions[number]


def _held(timeline: Timeline, step: int, room: Room) -> ScheduleSpec:
    """Cannot be refused: what it does at its first step is in force there already."""
    now = timeline.at(step).schedule
    weights = {name: Ramp(knots=(Knot(at=0, value=ramp.at(step)),)) for name, ramp in now.weights.items()}
    return now.model_copy(update={"weights": weights})
