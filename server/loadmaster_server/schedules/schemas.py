"""What travels over HTTP about schedules."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from loadmaster_flight.spec import Ramp, ScheduleSpec

from ..access import Name
from .merge import Side

Author = Name


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must be text without the character NUL")
    return text


Message = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S"), AfterValidator(_storable)]
Step = Annotated[int, Field(ge=0, lt=1 << 53)]
MAX_KNOTS = 10_000


def _bounded(schedule: ScheduleSpec) -> ScheduleSpec:
    """Small enough that an answer with it stays below 1 MB, and that every step evaluates it in no time."""
    curves = (*schedule.weights.values(), schedule.microbatches, schedule.seq_len)
    num = sum(len(ramp.knots) for ramp in curves) + len(schedule.retired)
    if num > MAX_KNOTS:
        raise ValueError(f"a schedule must have at most {MAX_KNOTS} knots and retired sources in all, got {num}")
    return schedule


BoundedSchedule = Annotated[ScheduleSpec, AfterValidator(_bounded)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class PublishRequest(_Body):
    """Publish a schedule from a step on."""

    author: Author | None = None
    """None: who asks. Somebody else may be named only where access is off."""
    message: Message
    schedule: BoundedSchedule | None = None
    """None: the author's draft."""
    at_step: Step | None = None
    """None: the first step that is not bound. Beyond what is planned: it waits, and is suspended if its base moves."""


class ActRequest(_Body):
    """Restore a revision, or hold the mixture."""

    author: Author | None = None
    """None: who asks. Somebody else may be named only where access is off."""
    message: Message
    at_step: Step | None = None


class RetimeRequest(_Body):
    """Let a scheduled publish wait for another step."""

    author: Author | None = None
    """None: who asks. Somebody else may be named only where access is off."""
    at_step: Step


class DraftRequest(_Body):
    """Keep what an author is about to publish."""

    base: Annotated[int, Field(ge=0)]
    schedule: BoundedSchedule


class RebaseRequest(_Body):
    """Bring a draft onto the newest revision."""

    choices: dict[str, Side] = Field(default_factory=dict)
    """Field of a conflict -> whose value to take."""


class PreviewRequest(_Body):
    """Ask what a schedule would do."""

    schedule: BoundedSchedule
    until_step: Annotated[int, Field(ge=1, lt=1 << 53)]
    at_step: Step | None = None
    max_repeats: Annotated[float | None, Field(gt=0)] = None
    """Passes over a source beyond which it is said to repeat."""


class RevisionHead(_Body):
    """An immutable revision, without its schedule. `created_at`: seconds since 1970."""

    revision: int
    base: int | None
    from_step: int
    author: str
    message: str
    created_at: float
    changed: list[str]
    """Fields that differ from its base: `weights.SOURCE`, `microbatches`, `seq_len`."""


class RevisionView(RevisionHead):
    """An immutable revision."""

    schedule: ScheduleSpec


class ScheduledHead(_Body):
    """A publish that waits for its step, without its schedule. `state`: pending, suspended, activated or cancelled."""

    number: int
    base: int
    at_step: int
    author: str
    message: str
    state: str
    reason: str
    revision: int | None
    created_at: float


class ScheduledView(ScheduledHead):
    """A publish that waits for its step."""

    schedule: ScheduleSpec


class StretchView(_Body):
    """From this step on this revision is in force."""

    from_step: int
    revision: int


class ScheduleView(_Body):
    """The newest schedule of a run; ETag: its revision."""

    run: str
    revision: int
    schedule: ScheduleSpec
    first_free: int
    """The first step that can still be changed."""
    planned: int
    """Steps below this have a plan."""
    end_step: int | None
    timeline: list[StretchView]
    scheduled: list[ScheduledHead]
    """Those that are pending or suspended."""
    sources: list[str]
    """All of the run, with a weight or without, in its order."""
    g_multiple: int
    c_multiple: int
    """What the planner rounds G and C down to."""
    rows: int
    """Rows of C tokens in a microbatch."""
    until_steps: int | None
    """Steps that the run was created to have, where it says so."""


class PublishReply(_Body):
    """What a change became; one of them is null."""

    revision: RevisionView | None
    scheduled: ScheduledView | None


class DraftHead(_Body):
    """A draft, without its schedule."""

    author: str
    base: int
    version: int
    updated_at: float
    is_stale: bool
    """The newest revision is not its base any more: rebase it."""


class DraftView(DraftHead):
    """A draft; ETag: its version."""

    schedule: ScheduleSpec


class EntryView(_Body):
    """One field of a schedule."""

    ramp: Ramp | None
    is_retired: bool


class ConflictView(_Body):
    """A field that both sides changed, each in its own way."""

    field: str
    base: EntryView
    mine: EntryView
    theirs: EntryView


class RebaseReply(_Body):
    """A draft after its rebase; where conflicts are left it is as it was."""

    draft: DraftView
    conflicts: list[ConflictView]
    merged: ScheduleSpec
    """With mine where there is a conflict."""


class ForecastView(_Body):
    """A source until the step asked for; null: not known, or not before it."""

    tokens: int
    epochs: float | None
    dry_step: int | None
    repeats_step: int | None


class SourcePreview(_Body):
    """A source as things stand, and with the schedule asked about."""

    source: str
    epoch_tokens: int | None
    is_estimated: bool
    before: ForecastView
    after: ForecastView


class PreviewReply(_Body):
    """What a schedule would do from `from_step` on."""

    from_step: int
    until_step: int
    changed: list[str]
    sources: list[SourcePreview]
    warnings: list[str]


class AuditView(_Body):
    """One change: who, what, when (seconds since 1970)."""

    number: int
    at: float
    author: str
    action: str
    run: str
    revision: int | None
    message: str
    details: dict[str, Any]
