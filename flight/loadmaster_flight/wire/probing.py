"""Is anybody there? A process that was killed refuses connections at once, long before its heartbeats are missed."""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack
from urllib.parse import urlsplit

PROBE_S = 0.3
MAX_AT_ONCE = 256
"""Sockets that are open at once."""


def refusing(addresses: Iterable[str], *, timeout_s: float = PROBE_S) -> set[str]:
    """Which of some addresses refuse connections: their host answers that nobody listens there.

    A process that is stopped, or a host that does not answer, does not refuse. Any thread may ask.

    Args:
        addresses: `scheme://host:port`; 256 at a time are asked at once.
        timeout_s: Of those together.
    """
    remaining = list(addresses)
    refused: set[str] = set()
    while remaining:
        refused |= _refusing_of(remaining[:MAX_AT_ONCE], timeout_s)
        remaining = remaining[MAX_AT_ONCE:]
    return refused


def _refusing_of(addresses: list[str], timeout_s: float) -> set[str]:
    refused: set[str] = set()
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for address in addresses:
            probe = stack.enter_context(_socket_for(address))
            try:
                code = probe.connect_ex(_place(address))
            except OSError:  # a name that is not known (any more): nobody has refused
                continue
            if code == errno.ECONNREFUSED:
                refused.add(address)
            elif code == errno.EINPROGRESS:
                selector.register(probe, selectors.EVENT_WRITE, address)
        until_s = time.monotonic() + timeout_s
        while selector.get_map() and (left_s := until_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                probe = selector.unregister(key.fileobj).fileobj  # type: ignore[assignment]
                if probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED:
                    refused.add(key.data)
    return refused


def _socket_for(address: str) -> socket.socket:
    probe = socket.socket(socket.AF_INET6 if ":" in _place(address)[0] else socket.AF_INET)
    probe.setblocking(False)
    return probe


def _place(address: str) -> tuple[str, int]:
    parts = urlsplit(address)
    return parts.hostname or "", parts.port or 0
