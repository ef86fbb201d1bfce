"""How a process learns that it is to end: by a signal, or because its parent is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading


class StopEvent(threading.Event):
    """Set when the process is to end."""

    signal_number = 0
    """The signal that set it; 0 where the parent is gone."""

    @property
    def is_notice(self) -> bool:
        """Whether there is time to hand over what we own: SIGTERM asks for an end, and does not force it."""
        return self.signal_number == signal.SIGTERM


def stop_event(*, has_parent_pipe: bool) -> StopEvent:
    """An event that SIGTERM, SIGINT and, with a parent's pipe, the end of standard input set. Main thread only.

    A second signal ends the process at once. A thread hears the signals through `signal.set_wakeup_fd`, whose byte is
    written as the signal comes: a handler would run in the main thread, which a signal that comes just before it
    blocks in `wait`, or on another thread, does not wake.
    """
    stop = StopEvent()
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)

    def listen() -> None:
        while number := os.read(heard, 1):
            if stop.is_set():
                os._exit(1)
            stop.signal_number = number[0]
            stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    threading.Thread(target=listen, name="signals", daemon=True).start()
    if has_parent_pipe:
        end_with_parent(stop)
    return stop


def end_with_parent(stop: threading.Event) -> None:
    """Set `stop` when standard input reaches its end: the parent that held the pipe is gone. Exits hard after 3 s."""

    def watch() -> None:
        fd = sys.stdin.fileno()
        with contextlib.suppress(OSError):
            while os.read(fd, 4096):
                pass
        stop.set()
        threading.Event().wait(3.0)
        os._exit(3)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
