"""Says what pydantic found wrong: field, rule, value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MAX_FAULTS = 8
MAX_VALUE_CHARS = 80


def describe_faults(errors: Iterable[Mapping[str, Any]]) -> str:
    """One sentence of all faults, `field: rule, got value`, at most eight of them.

    Args:
        errors: What pydantic's `errors()` returns: mappings with loc, msg and input.
    """
    faults = [_describe(error) for error in errors]
    rest = len(faults) - MAX_FAULTS
    return "; ".join(faults[:MAX_FAULTS]) + (f"; and {rest} more" if rest > 0 else "")


def _describe(error: Mapping[str, Any]) -> str:
    if error.get("type") == "json_invalid":
        return f"body must be JSON: {error.get('ctx', {}).get('error', 'it is not')}, at byte {error['loc'][-1]}"
    field = ".".join(str(part) for part in error["loc"]) or "it"
    rule = str(error["msg"]).removeprefix("Value error, ")
    if error.get("type") in ("missing", "value_error"):
        return f"{field}: {rule}"
    value = repr(error.get("input"))
    return f"{field}: {rule}, got {value if len(value) <= MAX_VALUE_CHARS else value[:MAX_VALUE_CHARS] + '…'}"
