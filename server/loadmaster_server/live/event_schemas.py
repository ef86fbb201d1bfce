"""Events of GET /events. Each says what changed since the one before; a client reads the rest once, after `hello`."""

from __future__ import annotations

from .schemas import LiveModel


class HelloEvent(LiveModel):
    """First on every connection: read everything again. `epoch` changes when another planner acts."""

    epoch: str
    server_at: float
    heartbeat_s: float
    """A comment comes at least this often: silence for three times as long is a lost connection."""
    run: str | None
    stream: str


class RunEvent(LiveModel):
    """The run's or the stream's state changed; or, without `run=`, any run's."""

    run: str
    state: str
    reason: str
    revision: int


class ProgressEvent(LiveModel):
    """The stream moved. At most two a second."""

    run: str
    stream: str
    generation: int
    state: str
    acknowledged: int
    bound: int
    planned: int
    tokens: int | None
    tokens_per_s: float | None
    step_s: float | None
    wait_s: float | None
    """As in OverviewView."""
    wait_share: float | None
    window_s: float | None
    waiting_text: str
    waits: list[tuple[int, float, float]]
    """[step, longest, mean] of steps that were heard of, or heard more of, since the event before: seconds."""


class RanksEvent(LiveModel):
    """Ranks that changed, as columns; the others are as they were."""

    rank: list[int]
    behind: list[int]
    """Steps behind the rank that is furthest: nothing changes while all go together."""
    state: list[str]
    wait_s: list[float | None]
    """To two significant digits; told at most every two seconds, and when it moved by a quarter and 5 ms."""


class ActorsEvent(LiveModel):
    """Processes that came, changed or went."""

    actor: list[str]
    role: list[str]
    address: list[str]
    busy: list[float | None]
    blocked: list[float | None]
    idle: list[float | None]
    """To 0.05; told at most every two seconds."""
    state: list[str]
    gone: list[str]


class SourcesEvent(LiveModel):
    """Sources that changed, as columns; told at most every two seconds."""

    name: list[str]
    state: list[str]
    rate: list[float | None]
    """To two significant digits."""
    errors: list[int | None]
    retries: list[int | None]


class ScheduleEvent(LiveModel):
    """Revisions, scheduled publishes or drafts changed: read them again."""

    run: str
    revision: int
    scheduled: list[int]
    """Numbers of the publishes that wait or are suspended."""
    drafts: dict[str, int]
    """Author -> version of the draft."""
    first_free: int


class AuditEvent(LiveModel):
    """A line of the audit log."""

    number: int
    at: float
    author: str
    action: str
    run: str
    revision: int | None
    message: str


class ResyncEvent(LiveModel):
    """The client read too slowly and has missed events: read everything again."""

    dropped: int


class LiveEvents(LiveModel):
    """The name of each field is the name of an event, its type what the event's `data` holds as JSON."""

    hello: HelloEvent
    run: RunEvent
    progress: ProgressEvent
    ranks: RanksEvent
    actors: ActorsEvent
    sources: SourcesEvent
    schedule: ScheduleEvent
    audit: AuditEvent
    resync: ResyncEvent
