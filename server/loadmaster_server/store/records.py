"""What the store hands out: frozen records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.spec.mesh import TpMode
from loadmaster_flight.wire.skipping import Skip
from loadmaster_flight.wire.step_plan import Pieces


class GenerationState(StrEnum):
    """open: being planned and served. paused: waits for a person. failed: cannot go on. ended: all of it was
    acknowledged. fenced: a newer generation took over."""

    OPEN = "open"
    PAUSED = "paused"
    FAILED = "failed"
    ENDED = "ended"
    FENCED = "fenced"


class LeaseKind(StrEnum):
    """A partition of a source (owned by a loader), or a dp rank of a generation (owned by a constructor)."""

    PARTITION = "partition"
    DP = "dp"


class VerdictKind(StrEnum):
    """measured: the stream leaves the sample out for its content, for good. over_long: it is longer than its step
    allows. masked: it was planned already and is served without loss."""

    MEASURED = "measured"
    OVER_LONG = "over_long"
    MASKED = "masked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What is frozen of a run: when it was created, and of each source that was added since.

    Attributes:
        spec: With all sources; those that were added come last, in the order in which they came.
        manifests: One a source, in ordinal order.
        num_added: How many of them were added.
    """

    spec: RunSpec
    manifests: tuple[SourceManifest, ...]
    num_added: int = 0

    @property
    def num_created(self) -> int:
        """Sources that the run was created with."""
        return len(self.manifests) - self.num_added

    def first(self, num: int) -> Definition:
        """The same with the first `num` sources, which are at least those that the run was created with."""
        if num == len(self.manifests):
            return self
        sources = {name: self.spec.sources[name] for name in self.spec.source_names[:num]}
        spec = self.spec.model_copy(update={"sources": sources})
        return Definition(spec=spec, manifests=self.manifests[:num], num_added=num - self.num_created)

    @property
    def lanes(self) -> list[int]:
        """Lanes of each source, in ordinal order."""
        return [manifest.lanes for manifest in self.manifests]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCounts:
    """What a source holds, as far as it is known: rows from footers, and what an epoch of it held when planned."""

    num_rows: int | None = None
    epoch_rows: int | None = None
    epoch_samples: int | None = None
    epoch_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKey:
    """A stream of a run."""

    run: str
    stream: str

    def __str__(self) -> str:
        return f"{self.run}/{self.stream}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationKey:
    """A generation of a stream of a run."""

    run: str
    stream: str
    generation: int

    @property
    def stream_key(self) -> StreamKey:
        return StreamKey(run=self.run, stream=self.stream)

    def __str__(self) -> str:
        return f"{self.run}/{self.stream} generation {self.generation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRecord:
    """A generation as it stands. `planned`, `bound`, `acknowledged` and `end_step` are exclusive bounds of steps.

    Attributes:
        parent: Generation that it goes on from at `parent_step`; -1 for a fresh start.
        mesh: Axis name -> size, slowest axis first.
        code: Stable code of the error that paused or failed it, with its sentence in `reason`.
        end_step: Where the stream ends; None until that is planned.
        replay_until: Steps below this are planned as the parent had them, and bound at once; None: it plans anew.
        skip: Steps that are planned and never served.
        held_from: The first step that a later generation can go on from.
        opened_at: Seconds since 1970.
    """

    key: GenerationKey
    parent: int
    parent_step: int
    first_step: int
    mesh: dict[str, int]
    world_size: int
    state: GenerationState
    code: str
    reason: str
    planned: int
    bound: int
    acknowledged: int
    end_step: int | None
    replay_until: int | None = None
    skip: Skip = field(default_factory=Skip)
    held_from: int = 0
    opened_at: float = 0.0

    @property
    def coords(self) -> dict[str, npt.NDArray[np.int64]]:
        """Axis -> coordinate of every rank, (W,)."""
        at = np.unravel_index(np.arange(self.world_size), tuple(self.mesh.values()))
        return {axis: np.asarray(at_W, np.int64) for axis, at_W in zip(self.mesh, at, strict=True)}

    def fetching(self, tp_mode: TpMode) -> np.ndarray:
        """Which ranks fetch their batches themselves, (W,), bool: those of tp 0 alone where it hands them on."""
        tp_W = self.coords.get("tp")
        return np.ones(self.world_size, bool) if tp_mode is not TpMode.BROADCAST or tp_W is None else tp_W == 0

    @property
    def dp(self) -> int:
        """Data-parallel ranks."""
        return self.mesh["dp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGeneration:
    """What the ranks of a rendezvous agreed on. `nonces` has one word a rank, in order.

    Attributes:
        replay_until: The parent's steps below this are bound again at once; None: nothing is.
        skip: Steps that are left out.
    """

    parent: int
    first_step: int
    mesh: dict[str, int]
    nonces: list[str]
    replay_until: int | None = None
    skip: Skip = field(default_factory=Skip)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorRecord:
    """A process that registered and has not been given up."""

    number: int
    role: str
    address: str
    incarnation: str
    pid: int
    capacity_bytes: int

    @property
    def actor_id(self) -> str:
        """Its name on the wire."""
        return f"{self.role}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """Who owns what, or with `standby` from 1 on stands by to own it: see `LeaseKind` and models.LeaseRow."""

    run: str
    kind: LeaseKind
    stream: str = ""
    generation: int = -1
    source: int = -1
    slot: int
    slots: int
    actor: int
    standby: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """One step of the plan log. `body` is `plans_to_bytes` of the whole step.

    `summary`: num_tokens, capacity (G * C), source_tokens (this step), total_tokens (since step 0 of the lineage),
    weights (2**30 = 1), graph (planning/aggregate.py), origins (planning/origins.py).
    """

    step: int
    digest: str
    revision: int
    is_final: bool
    body: bytes
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step to be committed, with what it rests on.

    Attributes:
        checkpoint: The planner's state after it, when this is a step to keep it at.
        verdicts: Samples that were left out on the way.
    """

    plan: PlanRecord
    checkpoint: bytes | None = None
    verdicts: Sequence[VerdictRecord] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMembership:
    """Which pieces a step of the plan log has.

    Attributes:
        pieces: Where the step's body has gone to a segment file their bins are -1: unknown.
        piece_U: As in `Units`, of the media that ranks of their own encode.
    """

    step: int
    digest: str
    pieces: Pieces
    piece_U: npt.NDArray[np.int64]
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRecord:
    """One entry of the verdict journal: see `VerdictKind`. `step` is set for masked samples only."""

    kind: VerdictKind
    stream: str = ""
    step: int = -1
    source: int
    epoch: int
    shard: int
    block: int
    row: int
    verdict: int
    reason: str
