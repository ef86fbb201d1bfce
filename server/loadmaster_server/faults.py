"""Says what pydantic found wrong: field, rule, value."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

MAX_FAULTS = 8
MAX_VALUE_CHARS = 80
MAX_FIELD_CHARS = 160
MAX_CHARS = 4000


def one_sentence(faults: Iterable[str]) -> str:
    """The first eight faults, and how many there are besides: however much somebody sent, the answer stays short."""
    said = iter(faults)
    first = list(itertools.islice(said, MAX_FAULTS))
    rest = sum(1 for _ in said)
    return _cut("; ".join(first), MAX_CHARS) + (f"; and {rest} more" if rest else "")


def describe_faults(errors: Iterable[Mapping[str, Any]]) -> str:
    """One sentence of all faults, `field: rule, got value`, at most eight of them.

    Args:
        errors: What pydantic's `errors()` returns: mappings with loc, msg and input.
    """
    return one_sentence(_describe(error) for error in errors)


def _describe(error: Mapping[str, Any]) -> str:
    if error.get("type") == "json_invalid":
        return f"body must be JSON: {error.get('ctx', {}).get('error', 'it is not')}, at byte {error['loc'][-1]}"
    field = _cut(".".join(str(part) for part in error["loc"]) or "it", MAX_FIELD_CHARS)
    rule = str(error["msg"]).removeprefix("Value error, ")
    if error.get("type") in ("missing", "value_error"):
        return f"{field}: {rule}"
    return f"{field}: {rule}, got {_cut(repr(error.get('input')), MAX_VALUE_CHARS)}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
