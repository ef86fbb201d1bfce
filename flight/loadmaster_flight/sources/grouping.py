"""Which sample a member of an archive belongs to, and as which field: a rule over its name."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..spec.source import FIRST_DOT, LAST_DOT

Grouping = Callable[[str], tuple[str, str]]
"""A member's name -> (key of its sample, field). An empty field: the member belongs to no sample."""


def grouping_of(rule: str) -> Grouping:
    """The function of a rule: `first_dot`, `last_dot`, or a regular expression with the groups `key` and `field`."""
    if rule == FIRST_DOT:
        return split_at_first_dot
    return split_at_last_dot if rule == LAST_DOT else _by_pattern(rule)


def split_at_first_dot(name: str) -> tuple[str, str]:
    """The path up to the first dot of its last part, and what follows that dot: WebDataset's own rule.

    The field is empty for a name without a dot or with a leading one: such a member belongs to no sample.
    """
    folder, slash, base = name.rpartition("/")
    stem, _, field = base.partition(".")
    return (folder + slash + stem, field) if stem else (name, "")


def split_at_last_dot(name: str) -> tuple[str, str]:
    """The path up to the last dot of its last part, and what follows that dot: keys may hold dots."""
    folder, slash, base = name.rpartition("/")
    stem, dot, field = base.rpartition(".")
    return (folder + slash + stem, field) if dot and stem.strip(".") else (name, "")


def _by_pattern(rule: str) -> Grouping:
    """The whole name must match; a name that does not belongs to no sample."""
    pattern = re.compile(rule)

    def split(name: str) -> tuple[str, str]:
        match = pattern.fullmatch(name)
        return (match["key"] or "", match["field"] or "") if match else (name, "")

    return split
