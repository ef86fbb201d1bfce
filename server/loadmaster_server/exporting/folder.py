"""A folder that is there as a whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadmaster_flight.wire.errors import BadRequestError


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder beside `path` to write into; it becomes `path` when the block ends, and is gone if it fails.

    Raises:
        BadRequestError: `path` is there already and no empty folder.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise BadRequestError(f"OUT must be a new or an empty folder, got {path}: name another one, or remove it")
    part = path.absolute().parent / f".{path.name}.{os.getpid()}.part"
    part.mkdir(parents=True)
    try:
        yield part
        part.replace(path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
