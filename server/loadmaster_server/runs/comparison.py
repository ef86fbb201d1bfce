"""Says where two plain trees differ, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAX_NAMED = 5
_ABSENT = object()


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield `path: before -> after` for every leaf that differs. Lists are compared by place."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from differences(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list):
        for i in range(max(len(before), len(after))):
            yield from differences(_at(before, i), _at(after, i), f"{path}[{i}]")
    elif before != after:
        yield f"{path}: {_show(before)} -> {_show(after)}"


def name_differences(before: Any, after: Any) -> str:
    """The first few differences in one line; empty when there is none."""
    found = list(differences(before, after))
    rest = len(found) - MAX_NAMED
    return "; ".join(found[:MAX_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _ABSENT


def _show(value: Any) -> str:
    text = "nothing" if value is _ABSENT else repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
