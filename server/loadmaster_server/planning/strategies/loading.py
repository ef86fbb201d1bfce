"""Finding a strategy by name."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.typing as npt

from loadmaster_flight.wire.errors import SpecError

from ..dgraph import DGraph
from ..primitives import Placement
from .built_in import bins_by_cost, llm_balance, long_short_context, sequential, vlm_hybrid

Strategy = Callable[[DGraph], Placement | npt.ArrayLike]
"""Places a graph: what `plan()` returns, or the final bin of each piece, shape (N,). Must be pure."""

BUILT_IN: dict[str, Strategy] = {
    strategy.__name__: strategy for strategy in (llm_balance, sequential, bins_by_cost, vlm_hybrid, long_short_context)
}


def load_strategy(name: str) -> Strategy:
    """A built-in strategy, or a function by its dotted name `package.module:function`.

    Modules in the working directory are found as well.

    Raises:
        SpecError: There is none of that name, its module cannot be imported, or it does not take one graph.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise _refused(name, "names neither")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise _refused(name, f"{type(error).__name__}: {error}") from error
    _check_callable(name, found)
    strategy: Strategy = found
    return strategy


def _check_callable(name: str, found: Any) -> None:
    if not callable(found):
        raise _refused(name, f"is not callable but a {type(found).__name__}")
    try:
        inspect.signature(found).bind(None)
    except TypeError as error:
        raise _refused(name, f"must take one argument, the graph: {error}") from error
    except ValueError:  # a callable without a signature: only calling it tells
        return


def _refused(name: str, why: str) -> SpecError:
    rule = f"must be one of {', '.join(BUILT_IN)} or package.module:function, got {name!r}"
    return SpecError(f"strategy: {rule} ({why})", field="strategy")
