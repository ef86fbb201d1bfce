"""A column that no shard has: the field of the spec that names it, and the name that was probably meant."""

from __future__ import annotations

import difflib
from typing import NoReturn

from ..spec.source import SourceSpec
from .files import source_error

_NAMED_COLUMNS = 20


def refuse_missing(source: str, spec: SourceSpec, path: str, names: list[str], uri: str) -> NoReturn:
    """Refuse a dotted path of the transform.

    Raises:
        SourceError: Always; names source, field, file and the columns that there are.
    """
    close = difflib.get_close_matches(path, names, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names[:_NAMED_COLUMNS])}"
    rule = f"has no column {path!r}, nor has any other shard; {hint}"
    raise source_error(source, uri, rule, field=f"transform.{_field(spec, path)}")


def _field(spec: SourceSpec, path: str) -> str:
    transform = spec.transform
    for name in ("text", "messages", "tokens"):
        if getattr(transform, name) == path:
            return name
    return next(name for name in ("image", "video", "audio") if path in getattr(transform, name))
