"""Records of the store as answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TypeVar

from pydantic import BaseModel

from ..store import AuditRecord, DraftRecord, RevisionRecord, ScheduledRecord, Timeline
from .merge import Conflict, Entry, changed_fields
from .schemas import AuditView, ConflictView, DraftView, EntryView, RevisionView, ScheduledView

Head = TypeVar("Head", bound=BaseModel)


def revision_view(timeline: Timeline, revision: RevisionRecord) -> RevisionView:
    """A revision, and what it changes of its base."""
    changed: list[str] = []
    if revision.base is not None:
        changed = changed_fields(timeline.revisions[revision.base].schedule, revision.schedule)
    return RevisionView(
        revision=revision.number,
        base=revision.base,
        from_step=revision.from_step,
        author=revision.author,
        message=revision.message,
        created_at=revision.created_at,
        schedule=revision.schedule,
        changed=changed,
    )


def scheduled_view(record: ScheduledRecord) -> ScheduledView:
    """A publish that waits for its step."""
    return ScheduledView(
        number=record.number,
        base=record.base,
        at_step=record.at_step,
        author=record.author,
        message=record.message,
        state=record.state.value,
        reason=record.reason,
        revision=record.revision,
        created_at=record.created_at,
        schedule=record.schedule,
    )


def draft_view(record: DraftRecord, newest: int) -> DraftView:
    """A draft, seen from the newest revision."""
    return DraftView(
        author=record.author,
        base=record.base,
        version=record.version,
        updated_at=record.updated_at,
        schedule=record.schedule,
        is_stale=record.base != newest,
    )


def headed(view: BaseModel, head: type[Head]) -> Head:
    """An entry of a list: the view without its schedule, of which there may be hundreds of sources."""
    return head(**{name: getattr(view, name) for name in head.model_fields})


def conflict_view(conflict: Conflict) -> ConflictView:
    """A conflict of a merge."""
    base, mine, theirs = (_entry_view(entry) for entry in (conflict.base, conflict.mine, conflict.theirs))
    return ConflictView(field=conflict.field, base=base, mine=mine, theirs=theirs)


def audit_view(record: AuditRecord) -> AuditView:
    """A row of the audit log."""
    return AuditView(**asdict(record))


def _entry_view(entry: Entry) -> EntryView:
    return EntryView(ramp=entry.ramp, is_retired=entry.is_retired)
