"""Brace patterns of shard names: `{a,b}` and `{000..012}`, as WebDataset users write them."""

from __future__ import annotations

import re

_BRACE = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def expand_braces(pattern: str) -> list[str]:
    """All names that a pattern stands for, in order; a pattern without braces stands for itself."""
    match = _BRACE.search(pattern)
    choices = _choices(match[1]) if match else []
    if match is None or not choices:
        return [pattern]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [name for choice in choices for name in expand_braces(before + choice + after)]


def _choices(text: str) -> list[str]:
    numbers = _RANGE.fullmatch(text)
    if numbers:
        first, last = numbers[1], numbers[2]
        width = len(first) if first.startswith("0") else 0
        return [str(i).zfill(width) for i in range(int(first), int(last) + 1)]
    return text.split(",") if "," in text else []
