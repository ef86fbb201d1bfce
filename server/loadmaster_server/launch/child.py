"""One local child process: started with a pipe to its parent, ready when it says so, ended without leftovers.

The child gets the read end of a pipe as standard input and ends when that reaches EOF, so that a parent killed with
SIGKILL leaves nothing behind. (PR_SET_PDEATHSIG would follow the creating thread and misfire.)
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from loadmaster_flight.wire.errors import DeadlineError, UnavailableError

T = TypeVar("T")
START_TIMEOUT_S = 60.0
STOP_GRACE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What to run: `loadmaster COMMAND ARGS…`, under a name that logs and errors use; `environment` adds to ours."""

    name: str
    command: str
    args: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


class Child:
    """A running child. All methods are called by the supervising thread."""

    def __init__(self, spec: ChildSpec, folder: Path) -> None:
        self.spec = spec
        self.log_path = folder / f"{spec.name}.log"
        self._ready_path = folder / f"{spec.name}.ready.json"
        self._ready_path.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "loadmaster", spec.command, *spec.args]
        argv += ["--ready-file", str(self._ready_path), "--parent-pipe"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **dict(spec.environment)},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait_ready(self, *, timeout_s: float = START_TIMEOUT_S) -> dict[str, Any]:
        """What the child wrote into its ready file.

        Raises:
            UnavailableError: It ended before it was ready; carries the end of its log.
            DeadlineError: It is not ready in time.
        """
        return wait_for(self._ready, timeout_s=timeout_s, what=f"{self.spec.name} to be ready (log: {self.log_path})")

    def _ready(self) -> dict[str, Any] | None:
        code = self.exit_code()
        if code is not None:
            raise UnavailableError(f"{self.spec.name} ended with code {code} before it was ready:\n{self.log_tail()}")
        with contextlib.suppress(OSError, ValueError):
            facts: dict[str, Any] = json.loads(self._ready_path.read_text())
            return facts
        return None

    def log_tail(self, *, lines: int = 12) -> str:
        """The last lines of what the child printed."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def terminate(self) -> None:
        """Ask it to end; returns at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def reap(self, *, until_s: float) -> None:
        """Wait for its end until the monotonic time `until_s`, then kill it."""
        try:
            self._process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._ready_path.unlink(missing_ok=True)


def wait_for(probe: Callable[[], T | None], *, timeout_s: float, what: str) -> T:
    """Poll `probe` until it returns something.

    Raises:
        DeadlineError: Nothing within `timeout_s`; names `what`.
    """
    until_s = time.monotonic() + timeout_s
    while (found := probe()) is None:
        if time.monotonic() > until_s:
            raise DeadlineError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(0.02)
    return found
