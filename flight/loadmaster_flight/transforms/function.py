"""User functions by dotted name, and code of users in general: what it raises becomes a verdict, not a crash."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..sources.blocks import ContentError
from ..wire.errors import SpecError, UnavailableError
from .sample import Outcome, bad

MAX_REASON_CHARS = 200
RowFunction = Callable[[dict[str, Any]], object]
T = TypeVar("T")


def load_function(name: str, *, field: str) -> RowFunction:
    """Import `package.module:callable`; modules in the working directory are found as well.

    Raises:
        SpecError: No such module or attribute, the import failed, or it cannot be called.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise SpecError(f"{field}: must look like package.module:callable, got {name!r}", field=field)
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        function: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            function = getattr(function, part)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise SpecError(f"{field}: {name!r} cannot be imported: {describe(error)}", field=field) from error
    if not callable(function):
        raise SpecError(f"{field}: {name!r} must be callable, got {type(function).__name__}", field=field)
    loaded: RowFunction = function
    return loaded


def judged(call: Callable[[], T], *, blame: str = "", passing: tuple[type[Exception], ...] = ()) -> T | Outcome:
    """What `call` returns, or a BAD outcome when it raises twice in a row.

    Only content makes a row bad, so errors of input, output and memory are raised on: they say nothing about the row.

    Args:
        blame: Put in front of the reason.
        passing: Raised on as well.
    """
    passing = (OSError, MemoryError, UnavailableError, *passing)
    try:
        return call()
    except passing:
        raise
    except Exception:
        pass  # the same row gets a second chance, and its second error is the reason
    try:
        return call()
    except passing:
        raise
    except Exception as error:
        return bad(blame + (str(error) if isinstance(error, ContentError) else describe(error)))


def describe(error: Exception) -> str:
    """Class and text of an error on one short line, without addresses that differ from process to process."""
    text = re.sub(r"0x[0-9a-fA-F]+", "0x..", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:MAX_REASON_CHARS] if text else type(error).__name__
