"""One rank of a tp group fetches, the others get its bytes through a torch process group."""

from __future__ import annotations

import importlib
import json
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa

from loadmaster_flight.wire.control import JoinReply
from loadmaster_flight.wire.errors import InternalError, LoadmasterError, MeshError, from_problem, to_problem

from .feed import BatchFeed, FeedItem
from .stream import Stream

OTHER_AXES = ("dp", "cp", "pp")
HEADER_LEN = 3 + len(OTHER_AXES)


def broadcast(stream: Stream, group: Any, *, device: str | None = None) -> Stream:
    """A stream whose batches tp rank 0 of a group fetches and hands on to the others, byte for byte.

    For runs with `mesh.tp_mode: broadcast`. Every rank of the group connects and wraps its stream, before its first
    batch, and takes the same number of batches: each `next()` is a collective call of the group, two messages. An
    error that rank 0 meets is raised on all of them. Positions and `state_dict` are those of an ordinary stream.

    Args:
        stream: What `connect` gave; use only the returned one afterwards.
        group: torch.distributed process group of the ranks that differ in tp alone, in tp order.
        device: Where the messages lie; by default cuda with the nccl backend, else cpu.

    Raises (from `next()`):
        MeshError: The group is not this rank's tp group, or the run's tp_mode is read; names what differs.
        LoadmasterError: What rank 0 met.
    """
    return stream.through(lambda feed: BroadcastFeed(feed, group, device=device))


class Kind(IntEnum):
    """What a message's payload is: an Arrow stream with one batch, nothing (the stream is over), a problem as JSON."""

    BATCH = 0
    END = 1
    ERROR = 2


class BroadcastFeed:
    """`BatchFeed` of one rank of a tp group. Used by one thread.

    Args:
        feed: The rank's own; it is read on rank 0 of the group only.
        group: torch.distributed process group.
        device: Where messages lie.
    """

    def __init__(self, feed: BatchFeed, group: Any, *, device: str | None = None) -> None:
        self._feed, self._group = feed, group
        self._torch = importlib.import_module("torch")
        self._dist = importlib.import_module("torch.distributed")
        self._is_source = self._dist.get_rank(group) == 0
        self._source = self._dist.get_global_rank(group, 0)
        self._device = device or ("cuda" if self._dist.get_backend(group) == "nccl" else "cpu")

    @property
    def run(self) -> str:
        """Name of the run."""
        return self._feed.run

    @property
    def info(self) -> JoinReply:
        """What joining found out, of this rank."""
        return self._feed.info

    def source_names(self, num: int) -> list[str]:
        """Names of the first `num` sources or more."""
        return self._feed.source_names(num)

    def next_step(self) -> FeedItem | None:
        """The next step, on all ranks of the group together; None after the last one."""
        return self._hand_on() if self._is_source else self._take()

    def acknowledge(self, step: int, *, wait_s: float = 0.0) -> None:
        """Rank 0 acknowledges for the group."""
        if self._is_source:
            self._feed.acknowledge(step, wait_s=wait_s)

    def close(self, *, in_peace: bool = True) -> None:
        """Close this rank's own feed. Idempotent."""
        self._feed.close(in_peace=in_peace)

    def _hand_on(self) -> FeedItem | None:
        try:
            _require_tp_group(self.info, self._dist.get_rank(self._group), self._dist.get_world_size(self._group))
            item = self._feed.next_step()
        except LoadmasterError as error:
            self._send(Kind.ERROR, 0, np.frombuffer(bytearray(json.dumps(to_problem(error)).encode()), np.uint8))
            raise
        if item is None:
            self._send(Kind.END, 0, np.empty(0, np.uint8))
        else:
            self._send(Kind.BATCH, item.step, _encoded(item.batch))
        return item

    def _send(self, kind: Kind, step: int, payload: np.ndarray) -> None:
        coords = self.info.coords if kind is not Kind.ERROR else {}
        header = [kind, step, len(payload), *(coords.get(axis, -1) for axis in OTHER_AXES)]
        self._broadcast(self._torch.tensor(header, dtype=self._torch.int64))
        if len(payload):
            self._broadcast(self._torch.from_numpy(payload))

    def _take(self) -> FeedItem | None:
        header = self._broadcast(self._torch.empty(HEADER_LEN, dtype=self._torch.int64)).tolist()
        kind, step, size_bytes, *others = header
        payload = self._torch.empty(size_bytes, dtype=self._torch.uint8)
        data = self._broadcast(payload).numpy() if size_bytes else np.empty(0, np.uint8)
        if kind == Kind.ERROR:
            raise from_problem(json.loads(data.tobytes()))
        _require_tp_group(self.info, self._dist.get_rank(self._group), self._dist.get_world_size(self._group))
        _require_same_place(self.info, others)
        return FeedItem(step=step, batch=_decoded(data)) if kind == Kind.BATCH else None

    def _broadcast(self, message: Any) -> Any:
        """The message as rank 0 has it, on the cpu."""
        moved = message.to(self._device)
        self._dist.broadcast(moved, src=self._source, group=self._group)
        return moved.cpu()


def _require_tp_group(info: JoinReply, group_rank: int, group_size: int) -> None:
    tp, size = info.coords.get("tp", 0), info.mesh.get("tp", 1)
    if info.tp_mode != "broadcast":
        raise MeshError(f"mesh.tp_mode must be broadcast for a stream to be broadcast, the run's is {info.tp_mode}")
    if (group_rank, group_size) != (tp, size):
        place = f"rank {group_rank} of {group_size}"
        raise MeshError(f"group must be this rank's tp group: it is tp {tp} of {size}, in the group {place}")


def _require_same_place(info: JoinReply, others: list[int]) -> None:
    for axis, index in zip(OTHER_AXES, others, strict=True):
        mine = info.coords.get(axis, -1)
        if mine != index:
            raise MeshError(f"group must hold ranks that differ in tp alone: {axis} is {mine} here and {index} on tp 0")


def _encoded(batch: pa.RecordBatch) -> np.ndarray:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return np.frombuffer(sink.getvalue(), np.uint8)


def _decoded(data: np.ndarray) -> pa.RecordBatch:
    try:
        return pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
    except (pa.ArrowException, StopIteration) as error:
        raise InternalError(f"what tp rank 0 sent is no batch: {error}") from error
