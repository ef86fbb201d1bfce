"""What processes and the planner say to each other over HTTP, as plain dataclasses (JSON on the wire).

Paths, all below /api/v1:
    POST /actors                                  RegisterRequest -> RegisterReply
    POST /actors/{actor_id}/heartbeat             HeartbeatRequest -> HeartbeatReply
    DELETE /actors/{actor_id}                     leave in peace: leases are free at once
    POST /actors/suspects                         SuspectReport -> SuspectReply: a process that cannot be reached
    GET  /actors                                  ActorView of each process that has not been given up
    POST /runs                                    CreateRunRequest -> RunView (same spec and manifests: idempotent)
    GET  /runs, /runs/{run}                       RunView
    POST /runs/{run}/sources                      AddSourceRequest -> SourceView: for revisions to name
    GET  /runs/{run}/generations                  GenerationView of each, by stream: forks name their parent
    GET  /runs/{run}/definition                   CreateRunRequest: the frozen spec and manifests
    POST /runs/{run}/resume                       RunView: let what is paused or failed go on
    POST /runs/{run}/streams/{stream}/join        JoinRequest -> JoinReply (poll until state is "open")
    POST /runs/{run}/streams/{stream}/tickets     TicketRequest -> TicketReply
    GET  /runs/{run}/streams/{stream}             StreamView
    GET  /runs/{run}/streams/{stream}/generations/{g}/plans?first=&last=&wait_s=&dp_ranks=&partitions=&bind=
                                                  &encoder_ranks= -> Arrow IPC stream of STEP_PLAN rows
    POST /runs/{run}/verdicts                     VerdictReport
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .errors import BadRequestError


class Role(StrEnum):
    LOADER = "loader"
    CONSTRUCTOR = "constructor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest:
    """A process announces itself. `incarnation` is a random word of this process's life; `address` is grpc://…"""

    role: Role
    address: str
    incarnation: str
    pid: int = 0
    capacity_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterReply:
    actor_id: str
    ticket_key_hex: str
    heartbeat_s: float
    lease_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """How ranks are, as their constructor sees them: the lists have one entry for each of `ranks`.

    Attributes:
        ranks: Global ranks that fetch.
        acknowledged: Steps below this one are consumed.
        seen_s: Seconds since it was last heard of; of an unheard one, since the constructor got the stream.
        moved_s: Seconds since it last consumed a step.
        left: Those that closed their stream.
        unheard: Those of which this constructor has heard nothing yet.
        wait_rank, wait_step, wait_s: One entry for each step that a rank has told of since the last report: how long it
            waited for that step.
        hosts: Where ranks run, as they say themselves: host -> ranks.
    """

    ranks: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    seen_s: list[float] = field(default_factory=list)
    moved_s: list[float] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    unheard: list[int] = field(default_factory=list)
    wait_rank: list[int] = field(default_factory=list)
    wait_step: list[int] = field(default_factory=list)
    wait_s: list[float] = field(default_factory=list)
    hosts: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """Steps < `step` of (run, stream, generation) are acknowledged (by a constructor's ranks) or released.

    `is_ready`: from constructors, the step that their ranks need next is built. `status`: for people; from the planner,
    whom all ranks of the stream wait for. `ranks`: from constructors, how each of theirs is; `steps_ready`: how many
    steps are built and not consumed by all of them.
    """

    run: str
    stream: str
    generation: int
    step: int
    status: str = ""
    is_ready: bool = False
    ranks: RankReport = field(default_factory=RankReport)
    steps_ready: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """How a loader reads the sources of a run: the lists have one entry for each of `source`, an ordinal. Those that
    changed since its last report, and now and then all of them.

    Attributes:
        reads, read_bytes: Blocks read, and their bytes in memory, since the run was opened.
        p50_ms, p99_ms: Time of a read, waits between tries included; of the last ones.
        errors: Reads that failed for good.
        retries: Tries that failed and were made again.
        last_error, last_error_s: The newest of both, and its age in seconds; empty and -1 where there was none.
        is_failing: Whether the last read failed.
    """

    run: str
    source: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    read_bytes: list[int] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    retries: list[int] = field(default_factory=list)
    last_error: list[str] = field(default_factory=list)
    last_error_s: list[float] = field(default_factory=list)
    is_failing: list[bool] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """What a process says of itself.

    Attributes:
        acknowledged: From constructors, per stream, what all their ranks have acknowledged.
        stats: For people; of these `busy_s`, `blocked_s` and `idle_s` say how its time was spent, see docs/live.md.
        warm: From loaders, standby leases whose next steps are in memory.
        is_leaving: It is about to end: its leases are to be handed over first.
        sources: From loaders, how they read.
    """

    incarnation: str
    acknowledged: list[StreamProgress] = field(default_factory=list)
    stats: dict[str, float] = field(default_factory=dict)
    warm: list[Lease] = field(default_factory=list)
    is_leaving: bool = False
    sources: list[SourceReport] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectReport:
    """`by` says that the process at `address` refuses connections, or `hangs`: does not answer. The planner looks."""

    address: str
    by: str = ""
    reason: str = ""
    hangs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectReply:
    """Whether it was given up, now or before."""

    is_gone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Partition k of P of a source of a run: lanes l with l mod P = k. A standby keeps warm what another one owns."""

    run: str
    source: int
    partition: int
    partitions: int
    is_standby: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRoute:
    """Where a constructor finds the partitions of a run's sources: [source, k, P] triples behind one address."""

    address: str
    partitions: list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One stream whose dp ranks a constructor serves.

    Attributes:
        first_step: First step of the generation.
        ranks: Global ranks served here, in order.
        dp_of_rank: dp coordinate of each of `ranks`.
        mesh: Axis name -> size, slowest axis first, as the run's spec orders it.
        loaders: Who owns the partitions.
        skip: [a, b): steps that nobody is served, or empty.
        shadows: Who stands by for them, and has their next steps: asked where an owner does not answer.
    """

    run: str
    stream: str
    generation: int
    first_step: int
    ranks: list[int]
    dp_of_rank: list[int]
    mesh: dict[str, int]
    build_ahead: int
    loaders: list[LoaderRoute]
    skip: list[int] = field(default_factory=list)
    shadows: list[LoaderRoute] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """The desired state of a process. `released`: what every rank has acknowledged, so that windows can move on."""

    leases: list[Lease] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    released: list[StreamProgress] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorView:
    """A process as the planner sees it.

    Attributes:
        heartbeat_age_s: Since it was last heard of; after a restart of the planner, since that.
        stats: Of its last heartbeat, for people; empty before the first.
    """

    actor_id: str
    role: Role
    address: str
    pid: int
    heartbeat_age_s: float
    stats: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRunRequest:
    """`spec` is the run spec as a plain tree; `manifests` one frozen source each, in ordinal order."""

    spec: dict[str, Any]
    manifests: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSourceRequest:
    """`source` is the entry of `sources` in a run spec as a plain tree; `manifest` what was found there, frozen. The
    ordinal in it does not matter."""

    name: str
    source: dict[str, Any]
    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    run: str
    state: str
    reason: str
    revision: int
    streams: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """A frozen source of a run. Counts are None until they are learned: rows from footers or from an epoch that was
    planned to its end, and how many samples and tokens of that epoch are served."""

    source: str
    format: str
    shards: int
    lanes: int
    size_bytes: int
    num_rows: int | None
    epoch_samples: int | None
    epoch_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutView:
    """Samples of one source that a stream does not train on, by verdict: bad or skipped (others took their place), or
    masked (served without loss, because only decoding showed that they are broken)."""

    source: str
    verdict: str
    count: int
    last_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """A rank that others wait for, or that is silent.

    Attributes:
        last_seen_s: Seconds since it was last heard of.
        acknowledged: It has consumed the steps before this one.
        state: "silent"; "behind": it is heard of and stays at its step; "left": it closed its stream before the others.
    """

    rank: int
    last_seen_s: float
    acknowledged: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """Where a stream is. Steps are exclusive bounds: planned, bound and acknowledged up to but not including.

    Attributes:
        waiting_for: Ranks that have yet to join.
        ranks: Ranks that have joined and are behind the others or silent, the one that is most behind first.
        waiting_text: Both for people, such as "waiting for rank 3, last seen 40 s ago"; empty where nobody waits.
    """

    run: str
    stream: str
    generation: int
    state: str
    reason: str
    planned: int
    bound: int
    acknowledged: int
    is_planned_to_end: bool
    waiting_for: list[int]
    source_names: list[str]
    source_tokens: list[int]
    source_weights: list[float]
    ranks: list[RankView] = field(default_factory=list)
    waiting_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationView:
    """One life of a stream. Steps are exclusive bounds, as in StreamView.

    Attributes:
        parent: Generation that it went on from at `first_step`; -1 for a fresh start.
        replay_until: The parent's steps below this are served again as they were; None: it plans anew.
        skip: [a, b): steps that are left out, or empty.
        held_from: The first step that a stream can still go on from in this generation.
        end_step: Number of steps of the stream; None until that is planned.
        opened_at: Seconds since 1970.
    """

    stream: str
    generation: int
    parent: int
    first_step: int
    mesh: dict[str, int]
    world_size: int
    state: str
    reason: str
    planned: int
    bound: int
    acknowledged: int
    replay_until: int | None
    skip: list[int]
    held_from: int
    end_step: int | None
    opened_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A rank asks to take part from `step` on.

    Attributes:
        nonce: Random word of this rank's attempt; a join with a new nonce starts a new rendezvous.
        coords: The rank's own mesh coordinates, checked; empty: the planner derives them.
        mesh: Axis name -> size that the trainer uses; empty: the spec's.
        parent: Generation that `step` belongs to; -1 for a fresh start.
        replay: Bind again at once what the parent had bound from `step` on; otherwise those steps are planned anew.
        skip: [a, b): steps that are left out, or empty.
    """

    rank: int
    world_size: int
    nonce: str
    step: int = 0
    parent: int = -1
    coords: dict[str, int] = field(default_factory=dict)
    mesh: dict[str, int] = field(default_factory=dict)
    replay: bool = True
    skip: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """`state` is "waiting" (then `waiting_for` names the ranks) or "open". `tp_mode` is "read" or "broadcast".

    After step skip[0] - 1 comes step skip[1], where `skip` is not empty.
    """

    state: str
    waiting_for: list[int] = field(default_factory=list)
    generation: int = -1
    first_step: int = 0
    coords: dict[str, int] = field(default_factory=dict)
    mesh: dict[str, int] = field(default_factory=dict)
    source_names: list[str] = field(default_factory=list)
    layout: str = ""
    rows: int = 1
    tp_mode: str = "read"
    skip: list[int] = field(default_factory=list)

    @property
    def fetches(self) -> bool:
        """Whether the rank fetches its batches itself; with tp_mode broadcast only those of tp coordinate 0 do."""
        return self.tp_mode != "broadcast" or self.coords.get("tp", 0) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketRequest:
    """A rank asks for its next window. `nonce`: the one that it joined the generation with; nobody else has it."""

    generation: int
    rank: int
    first_step: int
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketReply:
    """`ticket_hex` opens a window of steps [first_step, last_step) at the Flight `address`."""

    address: str
    ticket_hex: str
    last_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictReport:
    """Content that failed when it was materialized: the piece keeps its slot, masked."""

    stream: str
    generation: int
    step: int
    source: int
    epoch: int
    shard: int
    block: int
    row: int
    reason: str


T = TypeVar("T")


def to_json(message: Any) -> dict[str, Any]:
    """A message as plain JSON values."""
    return asdict(message)


def from_json(cls: type[T], body: Any) -> T:
    """Build a message from JSON values, nested messages included; unknown keys are ignored (additive evolution).

    Raises:
        BadRequestError: A field is missing or of another kind; names it.
    """
    if not isinstance(body, dict):
        raise BadRequestError(f"{cls.__name__} must be an object, got {type(body).__name__}")
    hints = get_type_hints(cls)
    try:
        known = {f.name: _build(hints[f.name], body[f.name]) for f in fields(cls) if f.name in body}  # type: ignore[arg-type]
        return cls(**known)
    except (TypeError, ValueError) as error:
        raise BadRequestError(f"{cls.__name__}: {error}") from error


def _build(hint: Any, value: Any) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if get_origin(hint) is list:
        return [_build(get_args(hint)[0], item) for item in value]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    return value
