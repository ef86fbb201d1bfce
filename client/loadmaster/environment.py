"""What the environment says; the only place that reads it."""

from __future__ import annotations

import os
from pathlib import Path

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.tls import CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE, Tls, tls_of_environment


def launched_as(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: as given, else RANK and WORLD_SIZE (torchrun sets them), else 0 of 1.

    Raises:
        BadRequestError: They are no numbers, or the rank is not below the world size.
    """
    rank = _number("RANK", 0) if rank is None else rank
    world_size = _number("WORLD_SIZE", 1) if world_size is None else world_size
    if world_size < 1:
        raise BadRequestError(f"world_size must be at least 1, got {world_size}")
    if not 0 <= rank < world_size:
        raise BadRequestError(f"rank must be in [0, {world_size}), got {rank}")
    return rank, world_size


def tls_as(*, ca: str | Path | None, cert: str | Path | None, key: str | Path | None) -> Tls:
    """Certificates as given, and what LOADMASTER_TLS_CA, _CERT and _KEY say where nothing is.

    Raises:
        BadRequestError: One of certificate and key without the other.
    """
    given = {CA_VARIABLE: ca, CERT_VARIABLE: cert, KEY_VARIABLE: key}
    return tls_of_environment({**os.environ, **{name: str(path) for name, path in given.items() if path is not None}})


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise BadRequestError(f"environment variable {name} must be an integer, got {text!r}") from None
