"""Records of a run's schedule: its revisions, drafts of the next ones, publishes that wait, and the audit log."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from loadmaster_flight.spec import ScheduleSpec

PLANNER = "planner"
"""Author of what the planner does by itself."""


class SupersededError(Exception):
    """A plan was made under a revision that is no longer in force at its step; nothing was written."""


class Action(StrEnum):
    """What the audit log speaks of."""

    PUBLISHED = "published"
    RESTORED = "restored"
    HELD = "held"
    SCHEDULED = "scheduled"
    ACTIVATED = "activated"
    SUSPENDED = "suspended"
    RETIMED = "retimed"
    CANCELLED = "cancelled"
    RESUMED = "resumed"
    SOURCE_ADDED = "source_added"


class ScheduledState(StrEnum):
    """pending: waits for its step. suspended: its base has moved on, or it became impossible; a person must look.
    activated: it is a revision. cancelled: somebody took it back."""

    PENDING = "pending"
    SUSPENDED = "suspended"
    ACTIVATED = "activated"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRecord:
    """An immutable change of a run's schedule, in force from `from_step` on, until a later number takes over."""

    number: int
    base: int | None
    from_step: int
    author: str
    message: str
    schedule: ScheduleSpec
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All revisions of a run, by number from 0 on.

    The revision in force at a step is the newest of those that begin at or before it: so the steps that a revision
    rules are known as soon as it is published, and each step has exactly one on every rank.
    """

    revisions: tuple[RevisionRecord, ...]

    @property
    def newest(self) -> RevisionRecord:
        return self.revisions[-1]

    def at(self, step: int) -> RevisionRecord:
        """The revision in force at a step."""
        return next(revision for revision in reversed(self.revisions) if revision.from_step <= step)

    def named_until(self, number: int) -> set[str]:
        """Sources that revision `number` or one before it names."""
        revisions = self.revisions[: number + 1]
        return {name for revision in revisions for name in (*revision.schedule.weights, *revision.schedule.retired)}

    def stretches(self) -> list[tuple[int, RevisionRecord]]:
        """First step and revision of each stretch of steps under one revision, in order of steps."""
        starts = sorted({revision.from_step for revision in self.revisions})
        return [(step, self.at(step)) for step in starts if self.at(step).from_step == step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What somebody wants to publish.

    Attributes:
        action: Which word the audit log has for it.
        base: The revision that it was made from; None: whatever is newest.
        at_step: None: the first step that can still be changed.
        closes_draft: The author's draft is done with.
    """

    author: str
    message: str
    action: Action = Action.PUBLISHED
    base: int | None = None
    at_step: int | None = None
    closes_draft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Where the train stream stands: steps below `first_free` are bound, steps below `planned` have a plan.

    Attributes:
        end_step: Exclusive end of the stream; None while it is not planned.
        mesh: Of the newest generation; None before anyone joined.
    """

    first_free: int = 0
    planned: int = 0
    end_step: int | None = None
    mesh: dict[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRecord:
    """A publish that waits for its step. `revision`: what became of it."""

    number: int
    base: int
    at_step: int
    author: str
    message: str
    schedule: ScheduleSpec
    state: ScheduledState
    reason: str
    revision: int | None
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a change became: a revision, or one that waits for a step that is not planned yet. One of them is None."""

    revision: RevisionRecord | None = None
    scheduled: ScheduledRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRecord:
    """What an author is about to publish.

    `version` grows with every change, also over drafts that were published or thrown away: it is the change's time in
    milliseconds since 1970.
    """

    author: str
    base: int
    version: int
    schedule: ScheduleSpec
    updated_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One change: who, what, when (seconds since 1970)."""

    number: int
    at: float
    author: str
    action: str
    run: str
    revision: int | None
    message: str
    details: dict[str, Any] = field(default_factory=dict)
