"""Embeddings of images from the ranks that encode them to where they belong, and into the sequence.

# W = ranks of the mesh, V = units that this rank encodes, T = tokens of this rank's slice, E = embedding size
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.errors import BadRequestError, MeshError
from loadmaster_flight.wire.schemas import NO_DP
from loadmaster_flight.wire.slicing import RankSeat, zigzag_index

from .batch import Microbatch
from .images import Images

Int64Array = npt.NDArray[np.int64]


def exchange(embeddings: Any, microbatch: Microbatch, group: Any) -> Any:
    """The embeddings of this rank's own images, from all ranks that encoded them.

    A collective call of all ranks of the mesh, for the same microbatch on all of them. Its backward pass is another
    one, which brings the gradients back and sums those of cp ranks: so every rank has to run a backward pass through
    the result, those too that get nothing (with `result.sum()` as a loss, which is 0). Where images travel with their
    documents nothing is sent, and dummies are dropped.

    Ranks of the first pipeline stage with tp 0 get the embeddings, each cp rank all of its dp rank's. Hand them on in
    the tp group as your framework does.

    Args:
        embeddings: Shape (sum of `images.encoder_tokens`, E): what the encoder makes of `images.pixel_values`.
        microbatch: This rank's.
        group: torch.distributed process group of all ranks of the mesh, in rank order.

    Returns:
        Shape (tokens of the microbatch's own images, E), in their order; no rows on ranks that get none.

    Raises:
        BadRequestError: The microbatch has no images, or embeddings has another number of rows.
        MeshError: group is not that of the mesh.
    """
    images = _images(microbatch)
    _require_rows(embeddings, sum(images.encoder_tokens), "the images that this rank encodes")
    if images.seat is None:
        return embeddings[:0] if images.is_dummy else embeddings
    _require_group(images.seat, group)
    route = _route(images, images.seat)
    torch = importlib.import_module("torch")
    send, order = (torch.from_numpy(index).to(embeddings.device) for index in (route.send, route.order))
    sent = embeddings.index_select(0, send)
    received = _all_to_all().apply(sent, route.send_splits, route.receive_splits, group)
    return received.index_select(0, order)


def merge(inputs_embeds: Any, embeddings: Any, microbatch: Microbatch) -> Any:
    """The embeddings of tokens with those of images at the placeholders of this rank's cp slice.

    Args:
        inputs_embeds: Shape (T, E) or (1, T, E).
        embeddings: Shape (tokens of the microbatch's own images, E): what `exchange` gives; or, where images travel
            with their documents, what the encoder gives. Each cp rank has all of them and takes its own.
        microbatch: This rank's.

    Returns:
        Like inputs_embeds, and of its dtype. It depends on embeddings even where none is taken, so that gradients flow
        on all ranks.

    Raises:
        BadRequestError: The microbatch has no images, or embeddings has another number of rows.
    """
    images = _images(microbatch)
    spans = images.own_tokens
    num = sum(count for _, count in spans)
    if images.seat is None and images.is_dummy:
        embeddings = embeddings[:0]
    _require_rows(embeddings, num, "the microbatch's own images")
    torch = importlib.import_module("torch")
    place_n = np.concatenate([np.zeros(0, np.int64), *(np.arange(start, start + n) for start, n in spans)])
    taken, local = _on_this_rank(place_n, microbatch)
    taken, local = (torch.from_numpy(index).to(inputs_embeds.device) for index in (taken, local))
    rows = embeddings.index_select(0, taken).to(inputs_embeds.dtype)
    if inputs_embeds.dim() == 3:
        rows = rows.unsqueeze(0)
    return torch.index_copy(inputs_embeds, inputs_embeds.dim() - 2, local, rows)


def _on_this_rank(place_n: Int64Array, microbatch: Microbatch) -> tuple[Int64Array, Int64Array]:
    """Which of some places of the whole microbatch are in this rank's slice, and where there."""
    place = microbatch.place
    if place.cp == 1:
        return np.arange(len(place_n)), place_n
    index_T = zigzag_index(np.asarray(microbatch.cu_seqlens, np.int64), place.cp, place.cp_rank)
    local_n = np.minimum(np.searchsorted(index_T, place_n), len(index_T) - 1)
    taken = np.flatnonzero(index_T[local_n] == place_n)
    return taken, local_n[taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """How embeddings of one microbatch travel, seen from one rank.

    Attributes:
        send: Rows of the rank's embeddings in the order of sending: by receiver, then by unit.
        send_splits: Length W, rows for each rank.
        receive_splits: Length W, rows from each rank.
        order: Received rows in the order of the microbatch's images.
    """

    send: Int64Array
    send_splits: list[int]
    receive_splits: list[int]
    order: Int64Array


def _route(images: Images, seat: RankSeat) -> _Route:
    num_ranks = int(np.prod(list(seat.mesh.values())))
    coords_W = [seat.coords_of(rank) for rank in range(num_ranks)]
    parts = [_rows_for(images, coords) for coords in coords_W]
    if _receives(coords_W[seat.rank]) and images.unit_rank is None:
        raise MeshError("mesh.stage_fields.images must name the first stage, which gets the embeddings of images")
    tokens_u = np.array(images.unit_tokens if _receives(coords_W[seat.rank]) else [], np.int64)
    rank_u = np.asarray([] if images.unit_rank is None else images.unit_rank.tolist(), np.int64)[: len(tokens_u)]
    order_u = np.argsort(rank_u, kind="stable")
    row_u = np.empty_like(order_u)
    row_u[order_u] = np.cumsum(tokens_u[order_u]) - tokens_u[order_u]
    return _Route(
        send=np.concatenate(parts),
        send_splits=[len(part) for part in parts],
        receive_splits=np.bincount(rank_u, weights=tokens_u, minlength=num_ranks).astype(int).tolist(),
        order=_ranges(row_u, tokens_u),
    )


def _rows_for(images: Images, coords: dict[str, int]) -> Int64Array:
    """Rows of this rank's embeddings that the rank at some coordinates gets."""
    tokens_V = np.array(images.encoder_tokens, np.int64)
    dp_V = np.array([] if images.encoder_dp is None else images.encoder_dp.tolist(), np.int64)
    mine_V = (dp_V == coords.get("dp", 0)) & (dp_V != NO_DP) & _receives(coords)
    start_V = np.cumsum(tokens_V) - tokens_V
    return _ranges(start_V[mine_V], tokens_V[mine_V])


def _ranges(start_n: Int64Array, count_n: Int64Array) -> Int64Array:
    """The concatenation of range(start, start + count) of all."""
    parts = (np.arange(a, a + n) for a, n in zip(start_n.tolist(), count_n.tolist(), strict=True))
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _receives(coords: dict[str, int]) -> bool:
    """Whether a rank embeds tokens for its group: the others get what it has."""
    return coords.get("pp", 0) == 0 and coords.get("tp", 0) == 0


def _images(microbatch: Microbatch) -> Images:
    if microbatch.images is None:
        raise BadRequestError("the microbatch must have images: the run has no media.vision, or the stage gets none")
    return microbatch.images


def _require_rows(embeddings: Any, num: int, whose: str) -> None:
    if embeddings.dim() != 2 or embeddings.shape[0] != num:
        raise BadRequestError(f"embeddings must be of shape ({num}, size) for {whose}, got {tuple(embeddings.shape)}")


def _require_group(seat: RankSeat, group: Any) -> None:
    dist = importlib.import_module("torch.distributed")
    rank, size, want = dist.get_rank(group), dist.get_world_size(group), int(np.prod(list(seat.mesh.values())))
    if (rank, size) != (seat.rank, want):
        raise MeshError(
            f"group must be all {want} ranks of the mesh in order, with this one as {seat.rank}: got {rank} of {size}"
        )


@functools.cache
def _all_to_all() -> Any:
    """The autograd function, made when torch is there."""
    torch = importlib.import_module("torch")

    class AllToAll(torch.autograd.Function):  # type: ignore[name-defined]
        """Rows to all ranks; gradients go back the same way."""

        @staticmethod
        def forward(ctx: Any, rows: Any, send: list[int], receive: list[int], group: Any) -> Any:
            ctx.back = receive, send, group
            return _moved(rows, send, receive, group)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> tuple[Any, None, None, None]:
            return _moved(gradient, *ctx.back), None, None, None

    return AllToAll


def _moved(rows: Any, send: list[int], receive: list[int], group: Any) -> Any:
    dist = importlib.import_module("torch.distributed")
    received = rows.new_empty((sum(receive), *rows.shape[1:]))
    dist.all_to_all_single(received, rows.contiguous(), receive, send, group=group)
    return received
