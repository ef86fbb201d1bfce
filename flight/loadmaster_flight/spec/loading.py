"""Reading a run spec from YAML, with errors that name field, rule, value and line."""

from __future__ import annotations

from pathlib import Path

from .run import RunSpec


def load_run_spec(path: str | Path) -> RunSpec:
    """Read and check a run spec; relative paths in it are resolved against its folder.

    Raises:
        SpecError: Not YAML, or a field is wrong; one line a fault, each with field, rule, value and YAML line.
    """
    raise NotImplementedError
