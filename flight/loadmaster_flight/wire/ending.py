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

    A second signal ends the process at once. The handler sets the event from a thread of its own: the main thread may
    just hold the event's lock inside `wait`, and would wait for itself.
    """
    stop = StopEvent()

    def on_signal(number: int, _: object) -> None:
        if stop.is_set():
            os._exit(1)
        stop.signal_number = number
        threading.Thread(target=stop.set, name="stop", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
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
