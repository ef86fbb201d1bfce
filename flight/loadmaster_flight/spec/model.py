"""The base of every model of a run spec."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict


class SpecModel(BaseModel):
    """Frozen, and an unknown key is an error: a typing mistake must not be a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


def refuse(faults: Iterable[str]) -> None:
    """Raise all faults that a validator found as one ValueError, a line each; none: return.

    A fault that starts with the name of a field, `align must divide seq_len, got ...`, is shown at that field.
    """
    lines = list(faults)
    if lines:
        raise ValueError("\n".join(lines))


def near(name: str, known: Iterable[str]) -> str:
    """Advice for a name that is not among the known ones: the nearest of them, or all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
