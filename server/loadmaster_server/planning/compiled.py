"""One source of code: compiled by numba where it is installed, interpreted where it is not, with the same bytes out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

HAS_NUMBA = importlib.util.find_spec("numba") is not None
"""numba came with the extra `server`. Its switch NUMBA_DISABLE_JIT=1 gives the interpreted functions as well."""


def compiled(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function compiled in nopython mode, its machine code cached on disk; or the function itself.

    Compilation happens at the first call of each combination of types. numba notices a change of the file that a
    function is in, not of the functions that it calls: remove `__pycache__` after editing what others call.
    """
    if not HAS_NUMBA:
        return function
    import numba

    try:
        compiled_function: Callable[_Arguments, _Result] = numba.njit(cache=True)(function)
    except RuntimeError:  # neither the package nor the user's cache folder can be written to
        compiled_function = numba.njit(function)
    return compiled_function


_TWINS: dict[FunctionType, FunctionType] = {}


def interpreted(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The same function, and every compiled one that it calls, as plain Python: the same bytes out.

    For inputs so small that compiling, seconds once on a new machine, would cost more than it saves.
    """
    source = cast(FunctionType, getattr(function, "py_func", function))
    return cast(Callable[_Arguments, _Result], _twin(source))


def _twin(source: FunctionType) -> FunctionType:
    if source not in _TWINS:
        names: dict[str, Any] = dict(source.__globals__)
        twin = FunctionType(source.__code__, names, source.__name__, source.__defaults__, source.__closure__)
        _TWINS[source] = twin
        for name, value in source.__globals__.items():
            if hasattr(value, "py_func"):
                names[name] = _twin(value.py_func)
    return _TWINS[source]
