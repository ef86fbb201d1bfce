"""What was being opened when a process died: so that a decoder that crashes takes no loader down a second time.

Each process maps a file of slots. Before an item is opened its name is written into a slot, and cleared afterwards; the
page outlives the process. Slots that a dead process left name suspects, which are opened in a process of their own:
see `watched`.
"""

from __future__ import annotations

import fcntl
import json
import logging
import mmap
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

LOG = logging.getLogger(__name__)
SLOT_BYTES = 512
NUM_SLOTS = 256
"""Items opened at once whose names are kept; one more than these is opened unnoted."""
REFRESH_S = 1.0
MAX_SUSPECTS = 10_000
"""Of these the newest are kept: every one costs a process each time it is opened."""
_EMPTY = bytes(SLOT_BYTES)


class SampleName(NamedTuple):
    """A sample, for any process."""

    run: str
    source: str
    shard: int
    block: int
    row: int


class CrashRecord:
    """Notes what this process opens, and knows what dead processes had open. For any number of threads.

    A process is dead when the lock on its file is free: several loaders may share a folder, and each learns within
    about a second what another one died of.

    Args:
        folder: Made where it is missing.

    Raises:
        OSError: The folder cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._suspects_file = folder, folder / "suspects.jsonl"
        self._lock = threading.Lock()
        self._suspects: Counter[SampleName] = Counter()
        self._refreshed_s = 0.0
        self._path, self._file, self._map = _own_slots(folder)
        self._free = list(range(NUM_SLOTS))
        self.refresh()

    @contextmanager
    def noting(self, sample: SampleName, phase: str) -> Iterator[None]:
        """Have a sample's name in the record for as long as the block runs."""
        try:
            slot = self._free.pop()
        except IndexError:
            yield
            return
        text = json.dumps([*sample, phase]).encode()[:SLOT_BYTES]
        at = slot * SLOT_BYTES
        self._map[at : at + SLOT_BYTES] = text.ljust(SLOT_BYTES, b"\0")
        try:
            yield
        finally:
            self._map[at : at + SLOT_BYTES] = _EMPTY
            self._free.append(slot)

    def num_deaths(self, sample: SampleName) -> int:
        """How many processes died while they had this sample open."""
        if time.monotonic() - self._refreshed_s > REFRESH_S:
            self.refresh()
        return self._suspects.get(sample, 0)

    def counts(self) -> tuple[int, int]:
        """How many samples are suspects, and how many deaths they are suspected of."""
        suspects = self._suspects
        return len(suspects), suspects.total()

    def refresh(self) -> None:
        """Look for what dead processes left, and read who is suspect."""
        with self._lock:
            self._refreshed_s = time.monotonic()
            for path in self._folder.glob("slots-*"):
                if path != self._path:
                    self._take_over(path)
            self._suspects = Counter(_read_suspects(self._suspects_file))

    def close(self) -> None:
        """Remove this process's own file: nothing is open any more. Idempotent."""
        self._path.unlink(missing_ok=True)
        self._file.close()

    def _take_over(self, path: Path) -> None:
        """Make suspects of what a dead process had open, and remove its file."""
        try:
            with path.open("rb") as left:
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = list(_names_in(left.read()))
                if found:
                    _append_suspects(self._suspects_file, list(dict.fromkeys(name for name, _ in found)))
                path.unlink(missing_ok=True)
        except (BlockingIOError, FileNotFoundError):
            return  # its process lives, or another one took it over
        for name, phase in found:
            LOG.warning("a process died during %s of %s: next it is opened in a process of its own", phase, name)


def _own_slots(folder: Path) -> tuple[Path, BinaryIO, mmap.mmap]:
    """A new file of empty slots, locked before anybody can find it."""
    name = f"{os.getpid()}-{uuid.uuid4().hex}"
    hidden, path = folder / f"new-{name}", folder / f"slots-{name}"
    file = hidden.open("w+b")
    file.truncate(NUM_SLOTS * SLOT_BYTES)
    fcntl.flock(file, fcntl.LOCK_EX)
    hidden.rename(path)
    return path, file, mmap.mmap(file.fileno(), NUM_SLOTS * SLOT_BYTES)


def _names_in(data: bytes) -> Iterator[tuple[SampleName, str]]:
    for at in range(0, len(data), SLOT_BYTES):
        text = data[at : at + SLOT_BYTES].rstrip(b"\0")
        found = _name_of(text) if text else None
        if found is not None:
            yield found


def _name_of(text: bytes) -> tuple[SampleName, str] | None:
    """None where a slot was being written when the machine failed."""
    try:
        run, source, shard, block, row, *phase = json.loads(text)
        return SampleName(str(run), str(source), int(shard), int(block), int(row)), str(*phase)
    except (ValueError, TypeError):
        return None


def _append_suspects(path: Path, names: list[SampleName]) -> None:
    with path.open("ab") as file:  # one write: lines of several processes do not mix, nor with one that is torn
        file.write(b"\n" + "".join(json.dumps(name) + "\n" for name in names).encode())


def _read_suspects(path: Path) -> list[SampleName]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = (_name_of(line) for line in lines[-MAX_SUSPECTS:])
    return [named[0] for named in found if named is not None]
