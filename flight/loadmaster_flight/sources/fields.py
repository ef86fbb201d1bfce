"""Columns that another name stands for: the field map of an Energon dataset, `image: jpg, caption: json[text]`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .blocks import Block, Projection, RowFault, heads
from .tar_block import KEY, OR

_ACCESS = re.compile(r"(?P<member>[^\[\]]+)(?P<keys>(?:\[[^\[\]]+\])*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One way to a value: a member, and keys (or places in lists) inside its JSON."""

    member: str
    keys: tuple[str, ...] = ()


class FieldMap:
    """Fields by name, each with one or more ways to its value: the first one that a sample has.

    Args:
        mapping: Field -> `member`, `member[key][key]`, or several of these with a comma between them.
    """

    def __init__(self, mapping: Mapping[str, str]) -> None:
        self.fields = {name: accesses_of(text) for name, text in mapping.items()}

    def find(self, path: str) -> tuple[Sequence[Access], str] | None:
        """The ways to a dotted path's field, and the rest of the path; None where no field has that name."""
        for head, rest in heads(path):
            if head in self.fields:
                return self.fields[head], rest
        return None

    def project(self, projection: Projection) -> Projection:
        """The members that a projection of fields needs."""
        if projection.paths is None:
            return projection
        paths = [member for path in projection.paths for member in self._members(path)]
        text = None if projection.text_path is None else OR.join(self._members(projection.text_path))
        return Projection(paths=tuple(dict.fromkeys(paths)), text_path=text)

    def _members(self, path: str) -> list[str]:
        found = self.find(path)
        return [path] if found is None else [access.member for access in found[0]]


def accesses_of(text: str) -> tuple[Access, ...]:
    """Read `jpg`, `json[text]` or `jpg,png`.

    Raises:
        ValueError: It is none of these.
    """
    return tuple(_access(option) for option in text.split(","))


def _access(option: str) -> Access:
    match = _ACCESS.fullmatch(option.strip())
    if match is None:
        raise ValueError(f"a field must be member, member[key] or several of these with commas, got {option!r}")
    return Access(member=match["member"], keys=tuple(re.findall(r"\[([^\[\]]+)\]", match["keys"])))


class MappedBlock:
    """A block whose fields are found through a map; its members stay reachable by their own names."""

    def __init__(self, block: Block, fields: FieldMap) -> None:
        self._block = block
        self._fields = fields
        self.num_rows = block.num_rows
        self.size_bytes = block.size_bytes

    def column(self, path: str, rows: npt.NDArray[np.int64]) -> list[object]:
        """Values of a field, or of a member."""
        found = self._fields.find(path)
        if found is None:
            return self._block.column(path, rows)
        accesses, rest = found
        below = tuple(rest.split(".")) if rest else ()
        values: list[object] = [None] * len(rows)
        for access in accesses:
            for place, value in enumerate(self._block.column(access.member, rows)):
                if values[place] is None:
                    values[place] = inside(value, (*access.keys, *below))
        return values

    def row(self, index: int) -> dict[str, object] | RowFault:
        """The fields of a sample and its key; the members where there is no field."""
        row = self._block.row(index)
        if isinstance(row, RowFault) or not self._fields.fields:
            return row
        at = np.array([index])
        return {KEY: row.get(KEY), **{name: self.column(name, at)[0] for name in self._fields.fields}}


def inside(value: object, keys: Sequence[str]) -> object:
    """The value below keys of mappings and places of lists; None where it is missing; a fault stays one."""
    for key in keys:
        if isinstance(value, RowFault):
            return value
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value
