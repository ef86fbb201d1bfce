"""A TCP proxy that loses connections: in the middle of what is sent, or all of them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from .ports import free_port

CHUNK_BYTES = 1 << 12
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards a port to another one. `close` it, or use `with`.

    Args:
        port: Where connections go, on this machine.
        cuts: How many bytes of answers each connection lets through before it is reset, one after the other; those
            after the last have no limit.
    """

    def __init__(self, port: int, cuts: list[int] | None = None) -> None:
        self._target = ("127.0.0.1", port)
        self._cuts = list(cuts or [])
        self.num_cut = 0
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self.port = free_port()
        self.resume()

    def pause(self) -> None:
        """Refuse connections, and reset those there are."""
        assert self._listener is not None
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None
        with self._lock:
            found, self._open = self._open, []
        for connection in found:
            reset(connection)

    def resume(self) -> None:
        """Take connections (again), at the same port."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self._listener = listener
        self._start(self._accept, listener)

    def close(self) -> None:
        if self._listener is not None:
            self.pause()
        for thread in self._threads:
            thread.join(5)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._open += [near, far]
                limit = self._cuts.pop(0) if self._cuts else 1 << 62
            self._start(self._forward, near, far, 1 << 62)
            self._start(self._forward, far, near, limit)

    def _forward(self, source: socket.socket, sink: socket.socket, limit: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(min(CHUNK_BYTES, limit)):
                sink.sendall(data)
                limit -= len(data)
                if not limit:
                    self.num_cut += 1
                    break
        reset(sink)
        reset(source)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reset(connection: socket.socket) -> None:
    """Close a connection so that the other end gets a reset."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])
