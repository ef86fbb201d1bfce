"""A YAML file whose values know their lines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..wire.errors import SpecError

Part = str | int
MERGE = "<<"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a field is in a file: its 1-based line (of the nearest thing that is there), and its path as written."""

    line: int
    field: str


class YamlDocument:
    """One parsed file.

    Attributes:
        name: What errors call the file.
        tree: Its plain values.

    Raises:
        SpecError: It cannot be read, is not YAML, or a mapping has a key twice.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        text = _read(path)
        with _yaml_errors_as_faults(self.name):
            root = yaml.compose(text, yaml.SafeLoader)
            if not isinstance(root, yaml.MappingNode):
                raise SpecError(f"{self.name}:1: a run spec must be a mapping of fields, got {_kind(root)}")
            faults = [f"{self.name}:{line}: {fault}" for line, fault in sorted(_duplicates(root))]
            if faults:
                raise SpecError("\n".join(faults))
            # Parsed again: constructing values rewrites the nodes of merged mappings.
            self.tree: Any = yaml.safe_load(text)
            self._root: yaml.Node = root

    def place(self, parts: Sequence[Part]) -> Place:
        """Find a field by the parts of its path.

        Parts that stand for a form the file does not use are passed over: a ramp written as a number has no knots, and
        an alternative of a union is not a key.
        """
        node, line, shown = self._root, _line(self._root), list[Part]()
        rest = list(parts)
        while rest and not isinstance(node, yaml.ScalarNode):
            part = rest.pop(0)
            found = _child(node, part)
            if found is not None:
                key, node = found
                line = _line(key)
                shown.append(part)
            elif isinstance(node, yaml.MappingNode):
                shown += [part, *rest]  # a field that is missing, by its full name
                break
        return Place(line=line, field=".".join(map(str, shown)))

    def split(self, field: str) -> list[Part]:
        """The parts of a dotted path; a key of the file may have dots itself."""
        node: yaml.Node | None = self._root
        parts: list[Part] = []
        while field:
            keys = [str(key.value) for key, _ in _items(node)]
            fitting = [key for key in keys if field == key or field.startswith(key + ".")]
            part = max(fitting, key=len, default=field.partition(".")[0])
            parts.append(part)
            found = _child(node, part) if node is not None else None
            node, field = found[1] if found else None, field[len(part) + 1 :]
        return parts


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path.name}: must be UTF-8, byte {error.start} is not") from error


@contextlib.contextmanager
def _yaml_errors_as_faults(name: str) -> Iterator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise SpecError(f"{name}:{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise SpecError(f"{name}: not YAML: {' '.join(str(error).split())}") from error


def _kind(node: yaml.Node | None) -> str:
    if node is None:
        return "an empty file"
    return "a list" if isinstance(node, yaml.SequenceNode) else f"{node.value!r}"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _items(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    return list(node.value) if isinstance(node, yaml.MappingNode) else []


def _child(node: yaml.Node, part: Part) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value of a mapping's key or a list's index; merged mappings (<<) are looked into last."""
    if isinstance(node, yaml.SequenceNode):
        inside = str(part).isdigit() and int(part) < len(node.value)
        return (node.value[int(part)],) * 2 if inside else None
    for key, value in _items(node):
        if key.value == str(part):
            return key, value
    for key, value in _items(node):
        merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
        found = next(filter(None, (_child(m, part) for m in merged)), None) if key.value == MERGE else None
        if found is not None:
            return found
    return None


def _duplicates(root: yaml.Node) -> Iterator[tuple[int, str]]:
    """Line and fault of each key that its mapping has already. Aliases are entered once."""
    seen_nodes: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen_nodes:
            continue
        seen_nodes.add(id(node))
        first_lines: dict[str, int] = {}
        for key, value in _items(node):
            name = str(key.value)
            if name in first_lines and isinstance(key, yaml.ScalarNode):
                yield _line(key), f"key {name!r} is there twice, first on line {first_lines[name]}"
            first_lines.setdefault(name, _line(key))
            waiting.append(value)
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
