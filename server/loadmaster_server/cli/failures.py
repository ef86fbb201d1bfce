"""How a sub-command fails: the reason on standard error, no traceback, exit code 2."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from loadmaster_flight.spec.loading import line_of
from loadmaster_flight.wire.errors import LoadmasterError

FAILED = 2
Command = Callable[[Sequence[str]], int]


def failing_cleanly(name: str) -> Callable[[Command], Command]:
    """Decorate a command: errors of ours and of the file system become one message and exit code 2."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(argv: Sequence[str]) -> int:
            try:
                return command(argv)
            except LoadmasterError as error:
                message = "\n".join([error.message, *getattr(error, "__notes__", [])])
            except BrokenPipeError:
                raise  # whoever started the command decides what a closed pipe means
            except OSError as error:
                message = f"{error.filename or ''}: {error.strerror or error}".removeprefix(": ")
            print(f"loadmaster {name}: {message}", file=sys.stderr)
            return FAILED

        return run

    return decorate


def with_lines(error: LoadmasterError, spec_path: Path) -> LoadmasterError:
    """The error with file and line of the field that each of its faults names."""
    faults: Iterable[dict[str, Any]] = error.details.get("faults") or [
        {"message": error.message, "field": error.details.get("field")}
    ]
    lines = [_with_line(fault["message"], fault["field"], spec_path) for fault in faults]
    located = type(error)("\n".join(lines), **error.details)
    located.__cause__ = error
    return located


def _with_line(message: str, field: str | None, spec_path: Path) -> str:
    return message if field is None else f"{spec_path.name}:{line_of(spec_path, field)}: {message}"
