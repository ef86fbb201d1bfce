"""Ports to listen at."""

from __future__ import annotations

import contextlib
import random
import socket

UNASSIGNED = (15_000, 32_000)
"""Below those that Linux gives to connections and to whoever asks for any port."""


def free_port() -> int:
    """A port of this machine that nobody has right now, and that no connection gets by chance meanwhile."""
    while True:
        port = random.randrange(*UNASSIGNED)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
