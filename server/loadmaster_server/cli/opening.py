"""Opening all sources of a spec under a progress bar: what `check`, `create` and `up` begin with."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadmaster_flight.spec import RunSpec, SourceManifest, load_run_spec
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_server.freezing import freeze_run
from loadmaster_server.runs.mesh import check_spec

from .failures import with_lines
from .soundness import refuse_small_budgets


def open_run(path: Path) -> tuple[RunSpec, list[SourceManifest]]:
    """Read a spec and freeze its sources; a bar on standard error shows how far, where a person looks.

    Raises:
        LoadmasterError: What `check` would refuse, in the same words, with file and line.
    """
    spec = load_run_spec(path)
    try:
        with source_bars() as bars:
            return spec, freeze_all(spec, bars)
    except LoadmasterError as error:
        raise with_lines(error, path) from error


@contextlib.contextmanager
def source_bars() -> Iterator[Progress]:
    """Bars on standard error that are gone in the end; none where it is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield bars


def freeze_all(spec: RunSpec, bars: Progress) -> list[SourceManifest]:
    """Freeze every source of a spec that is sound as a whole.

    Raises:
        LoadmasterError: A budget is below one step, the mesh does not fit, or a source cannot be opened.
    """
    refuse_small_budgets(spec)
    check_spec(spec)
    return freeze_run(spec, progress=SourceBar(bars, "opening sources", len(spec.sources)))


class SourceBar:
    """One bar over the files of all sources, as far as they are known. Called by many threads."""

    def __init__(self, bars: Progress, title: str, num_sources: int) -> None:
        self._bars, self._num_sources = bars, num_sources
        self._task = bars.add_task(title, total=None)
        self._done: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def __call__(self, source: str, done: int, of: int) -> None:
        """`done` of a source's `of` files are opened."""
        with self._lock:
            self._done[source] = (done, of)
            missing = self._num_sources - len(self._done)
            completed, total = sum(d for d, _ in self._done.values()), sum(n for _, n in self._done.values())
        self._bars.update(self._task, completed=completed, total=total + missing)
