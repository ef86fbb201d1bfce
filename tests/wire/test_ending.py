"""How processes end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WAITS = """
from loadmaster_flight.wire.ending import stop_event
stop = stop_event(has_parent_pipe=False)
print("ready", flush=True)
while not stop.wait(1e-5):  # nearly always inside the event's lock
    pass
"""

BLOCKS = """
import os, signal, threading
from loadmaster_flight.wire.ending import stop_event
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
stop = stop_event(has_parent_pipe=False)
def other():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    print("ready", flush=True)
    threading.Event().wait()
threading.Thread(target=other, daemon=True).start()
stop.wait()
os._exit(0)
"""


@pytest.mark.processes
def test_stop_event_when_another_thread_gets_the_signal_then_a_blocked_main_thread_learns_of_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", BLOCKS], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.communicate()


@pytest.mark.processes
def test_stop_event_when_the_signal_comes_inside_a_wait_then_it_is_set() -> None:
    for number in [signal.SIGTERM, signal.SIGINT] * 5:
        child = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE)
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            child.send_signal(number)
            assert child.wait(60) == 0
        finally:
            child.kill()
            child.communicate()
