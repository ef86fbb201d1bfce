"""What the adapters share: fields as torch tensors of the dtype that a framework wants, and what they refuse."""

from __future__ import annotations

import importlib
from typing import Any

from loadmaster_flight.wire.errors import BadRequestError, MeshError

from ..batch import Microbatch
from ..tensors import Array


def as_int64(values: Array) -> Any:
    """A field as a torch.int64 tensor; a numpy one is copied."""
    return _tensor(values, "int64")


def as_int32(values: Array) -> Any:
    """A field as a torch.int32 tensor; a numpy one is copied."""
    return _tensor(values, "int32")


def as_float32(values: Array) -> Any:
    """A field as a torch.float32 tensor."""
    return _tensor(values, "float32")


def _tensor(values: Array, dtype: str) -> Any:
    torch = importlib.import_module("torch")
    kind = getattr(torch, dtype)
    return values.to(kind) if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=kind)


def required(microbatch: Microbatch, name: str, framework: str) -> Array:
    """A field that the framework cannot do without.

    Raises:
        BadRequestError: This pipeline stage does not get it.
    """
    values = getattr(microbatch, name)
    if values is None:
        stage = microbatch.place.pp_rank
        raise BadRequestError(f"{framework} needs {name} on every rank, stage {stage} gets none: set mesh.stage_fields")
    return values


def refuse_cp(microbatch: Microbatch, framework: str, advice: str) -> None:
    """Refuse a slice where the framework wants whole microbatches.

    Raises:
        MeshError: The microbatch is cut for cp.
    """
    if microbatch.place.cp > 1:
        raise MeshError(f"{framework} takes whole microbatches, mesh.cp must be 1, got {microbatch.place.cp}: {advice}")
