"""Ways around: processes that are reached at another place than the one that they advertise.

A container advertises a name that means nothing on the host which publishes its port; a tunnel has a port of its own.
LOADMASTER_CONNECT_TO=`constructor-1:8710=127.0.0.1:8711,...` says where to connect instead; who answers there must
still have the certificate of whom was called. As curl's `--connect-to`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from .errors import BadRequestError

CONNECT_VARIABLE = "LOADMASTER_CONNECT_TO"


def detour_of(location: str, name: str, environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Where to connect for `grpc+tls://host:port`, and the name that the certificate must have (empty: the host's).

    Raises:
        BadRequestError: The variable is none of its kind.
    """
    parts = urlsplit(location)
    place = detours_in(environment.get(CONNECT_VARIABLE, "")).get(parts.netloc)
    if place is None:
        return location, name
    return f"{parts.scheme}://{place}", name or parts.hostname or ""


@lru_cache(maxsize=16)
def detours_in(text: str) -> dict[str, str]:
    """`HOST:PORT=HOST:PORT,...` as a table.

    Raises:
        BadRequestError: It is no such list; names the entry.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    return dict(_detour(entry) for entry in entries)


def _detour(entry: str) -> tuple[str, str]:
    called, _, place = entry.partition("=")
    for side in (called, place):
        try:
            is_place = bool(urlsplit(f"//{side}").port and urlsplit(f"//{side}").netloc == side)
        except ValueError:
            is_place = False
        if not is_place:
            raise BadRequestError(f"{CONNECT_VARIABLE} must look like host:port=host:port,..., got {entry!r}")
    return called, place
