"""One planner at a time on one state folder."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from loadmaster_flight.wire.errors import ConflictError


class StateLock:
    """Holds a state folder for this planner; the kernel lets go of it when the process dies, however it dies.

    Args:
        state_dir: The folder; made when it is missing.

    Raises:
        ConflictError: Another planner has it.
    """

    def __init__(self, state_dir: Path) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        self.token = ""
        self._fd: int | None = os.open(state_dir / "planner.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise ConflictError(f"another planner works in {state_dir}: stop it, or name another state_dir") from error

        self.token = self._read_token()

    def _read_token(self) -> str:
        """A word that is this folder's alone: who has the lock of the same folder reads the same."""
        assert self._fd is not None, "the lock is held"
        token = os.pread(self._fd, 64, 0).decode()
        if not token:
            token = secrets.token_hex(16)
            os.pwrite(self._fd, token.encode(), 0)
        return token

    def close(self) -> None:
        """Let go. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
