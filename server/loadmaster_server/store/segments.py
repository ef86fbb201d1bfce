"""Files with the bodies of old plans: Arrow IPC, zstd, one file for a range of steps of a generation."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from loadmaster_flight.wire.errors import BadRequestError, GoneError, UnavailableError
from loadmaster_flight.wire.schemas import STEP_PLAN

BATCH_STEPS = 16
"""Plans of one record batch: what is read at once to get at a step."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A file with the plans of the steps [first_step, last_step). `path` is below the storage URI."""

    path: str
    first_step: int
    last_step: int


class SegmentStorage:
    """Reads and writes segments below a URI. Any thread may call it.

    Args:
        uri: An absolute folder, or a URI that pyarrow knows: file://, s3://, gs://.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._lock = threading.Lock()
        self._opened: tuple[fs.FileSystem, str] | None = None

    def write(self, path: str, plans: Iterable[pa.RecordBatch]) -> int:
        """Write one file and return its size; there is the whole file or none.

        Args:
            path: Below the URI. A file that is there is replaced.
            plans: Rows of schema STEP_PLAN, one a step, in order and without a gap.

        Raises:
            UnavailableError: The storage cannot be written; names the file.
        """
        system, place = self._place(path)
        part = f"{place}.{secrets.token_hex(4)}.part"
        try:
            system.create_dir(place.rsplit("/", 1)[0], recursive=True)
            with _dropped_on_error(system, part):
                with system.open_output_stream(part) as sink:
                    _write(sink, plans)
                _settle(system, part)
                system.move(part, place)
            return int(system.get_file_info(place).size)
        except OSError as error:
            raise UnavailableError(f"plans cannot be moved to {self._name(path)}: {error}") from error

    def read(self, segment: Segment, first: int, last: int) -> list[pa.RecordBatch]:
        """The plans of the steps [first, last) that the segment has, one row each.

        Raises:
            GoneError: The file is not there any more; names it.
            UnavailableError: It cannot be read now.
        """
        system, place = self._place(segment.path)
        steps = range(max(first, segment.first_step), min(last, segment.last_step))
        try:
            with system.open_input_file(place) as source, pa.ipc.open_file(source) as reader:
                wanted = {(step - segment.first_step) // BATCH_STEPS for step in steps}
                batches = {i: reader.get_batch(i) for i in sorted(wanted)}
        except FileNotFoundError as error:
            text = f"the plans of steps {segment.first_step} to {segment.last_step - 1} were moved to"
            raise GoneError(f"{text} {self._name(segment.path)}, which is not there any more") from error
        except (OSError, pa.ArrowException) as error:
            raise UnavailableError(f"{self._name(segment.path)} cannot be read: {error}") from error
        places = [divmod(step - segment.first_step, BATCH_STEPS) for step in steps]
        return [batches[batch].slice(row, 1) for batch, row in places]

    def delete(self, path: str) -> None:
        """Delete one file; one that is not there is as good."""
        system, place = self._place(path)
        try:
            system.delete_file(place)
        except FileNotFoundError:
            return
        except OSError as error:
            raise UnavailableError(f"{self._name(path)} cannot be deleted: {error}") from error

    def _place(self, path: str) -> tuple[fs.FileSystem, str]:
        with self._lock:
            if self._opened is None:
                self._opened = _open(self.uri)
            system, root = self._opened
        return system, f"{root}/{path}"

    def _name(self, path: str) -> str:
        return f"{self.uri.rstrip('/')}/{path}"


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        system, root = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, ValueError, OSError) as error:
        rule = "storage must be an absolute folder or a URI such as s3://bucket/folder"
        raise BadRequestError(f"{rule}, got {uri!r}: {error}") from error
    return system, str(root).rstrip("/")


@contextlib.contextmanager
def _dropped_on_error(system: fs.FileSystem, place: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            system.delete_file(place)
        raise


def _write(sink: pa.NativeFile, plans: Iterable[pa.RecordBatch]) -> None:
    waiting: list[pa.RecordBatch] = []
    with pa.ipc.new_file(sink, STEP_PLAN, options=_OPTIONS) as writer:
        for plan in plans:
            waiting.append(plan)
            if len(waiting) == BATCH_STEPS:
                writer.write_batch(pa.concat_batches(waiting))
                waiting = []
        if waiting:
            writer.write_batch(pa.concat_batches(waiting))


def _settle(system: fs.FileSystem, place: str) -> None:
    """On disk before SQL forgets the bodies; object stores promise it when a file is closed."""
    if isinstance(system, fs.LocalFileSystem):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
