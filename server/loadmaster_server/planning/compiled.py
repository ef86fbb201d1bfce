"""One source of code: compiled by numba where it is installed, interpreted where it is not, with the same bytes out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import ParamSpec, TypeVar

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
