"""Where a stream's batches come from: the one interface that a planner's run and an embedded run share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from loadmaster_flight.wire.control import JoinReply
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.tls import Tls


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedItem:
    """One step of one rank: its slice of a RecordBatch of schema `batch_schema`, one row a microbatch."""

    step: int
    batch: pa.RecordBatch


def require_fetching(info: JoinReply) -> None:
    """Refuse to read for a rank whose batches another one hands on.

    Raises:
        BadRequestError: The run's tp_mode is broadcast and this rank is not of tp 0.
    """
    if not info.fetches:
        tp = info.coords.get("tp", 0)
        raise BadRequestError(
            f"mesh.tp_mode is broadcast and this rank is tp {tp}: use loadmaster.broadcast(stream, group)"
        )


class BatchFeed(Protocol):
    """The steps of one rank, in order. One thread calls `next_step`; `close` may be called by any."""

    @property
    def run(self) -> str:
        """Name of the run; waits for joining where it was not given."""
        ...

    @property
    def info(self) -> JoinReply:
        """What joining found out: generation, first step, coordinates, source names, layout."""
        ...

    def source_names(self, num: int) -> list[str]:
        """Names of the first `num` sources or more: those that were added since joining are asked for."""
        ...

    def next_step(self) -> FeedItem | None:
        """The next step; None after the last one, from then on."""
        ...

    def acknowledge(self, step: int, *, wait_s: float = 0.0) -> None:
        """The steps before `step` are consumed; the rank waited `wait_s` for the last of them. Returns at once."""
        ...

    def close(self, *, in_peace: bool = True) -> None:
        """End it. Idempotent. `in_peace`: the others are told that this rank closed its stream, and did not die."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """Everything that decides which steps a rank gets.

    Attributes:
        target: `https://host:port` of a planner, or the path of a run spec.
        run: Name of the run; None: the only one there is.
        step: First step wanted, of generation `parent`; -1 as parent starts afresh.
        mesh: Axis name -> size that the trainer uses; empty: the spec's.
        coords: Axis name -> this rank's coordinate; empty: derived.
        prefetch: Steps fetched beyond the one that is consumed.
        timeout_s: Deadline of each wait.
        replay: Serve what the parent had bound from `step` on as it was; otherwise it is planned anew.
        skip: [a, b): steps that are left out, or empty.
        tls: How to call planner and constructors; None: what the environment says.
    """

    target: str
    run: str | None = None
    stream: str = "train"
    rank: int = 0
    world_size: int = 1
    step: int = 0
    parent: int = -1
    mesh: Mapping[str, int] = field(default_factory=dict)
    coords: Mapping[str, int] = field(default_factory=dict)
    prefetch: int = 2
    timeout_s: float = 120.0
    replay: bool = True
    skip: Sequence[int] = ()
    tls: Tls | None = None

    def as_arguments(self) -> dict[str, Any]:
        """What the embedded run's `connect` takes besides the path, as keyword arguments."""
        return {
            "run": self.run,
            "stream": self.stream,
            "rank": self.rank,
            "world_size": self.world_size,
            "step": self.step,
            "parent": self.parent,
            "mesh": dict(self.mesh),
            "coords": dict(self.coords),
            "prefetch": self.prefetch,
            "timeout_s": self.timeout_s,
            "replay": self.replay,
            "skip": list(self.skip),
        }
