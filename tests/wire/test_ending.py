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
