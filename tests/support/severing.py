"""Cuts one process off from all others, while these still reach each other."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path

from .proxy import Proxy, reset


class SeveringProxy(Proxy):
    """A proxy that can lose the connections of some processes only. `close` it, or use `with`.

    Args:
        connect: Opens a connection to what it stands before.
        severed_ports: The local ports of processes that are cut off: connections from there are lost.
    """

    def __init__(self, connect: Callable[[], socket.socket], severed_ports: Callable[[], Set[int]]) -> None:
        self._connect, self._severed_ports = connect, severed_ports
        self._pairs: list[tuple[socket.socket, socket.socket, int]] = []
        super().__init__(0)

    def sever(self) -> None:
        """Reset the connections of processes that are cut off by now."""
        with self._lock:
            pairs = list(self._pairs)
        severed = self._severed_ports()
        for near, far, port in pairs:
            if port in severed:
                reset(near)
                reset(far)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, (_, port) = listener.accept()
            except OSError:
                return
            try:
                far = None if port in self._severed_ports() else self._connect()
            except OSError:
                far = None
            if far is None:
                reset(near)
                continue
            with self._lock:
                self._open = [one for one in self._open if one.fileno() >= 0] + [near, far]
                self._pairs = [pair for pair in self._pairs if pair[0].fileno() >= 0] + [(near, far, port)]
            self._start(self._forward, near, far, 1 << 62)
            self._start(self._forward, far, near, 1 << 62)


def to_port(port: int) -> Callable[[], socket.socket]:
    """Connects to a port of this machine."""
    return lambda: socket.create_connection(("127.0.0.1", port))


def to_file(path: Path) -> Callable[[], socket.socket]:
    """Connects to a Unix socket."""

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            raise
        return connection

    return connect


def ports_of(pids: Iterable[int]) -> set[int]:
    """Local ports of the TCP sockets that some processes have."""
    inodes = {inode for pid in pids for inode in _inodes_of(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in inodes:
                found.add(int(fields[1].rsplit(":", 1)[1], 16))
    return found


def _inodes_of(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")
