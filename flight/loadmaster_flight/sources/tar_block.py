"""A block of WebDataset samples: members with the same key, by extension.

# N = requested rows
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import orjson

from .blocks import Projection, RowFault, as_text, heads, value_at

KEY = "__key__"
OR = ";"
"""Between the names of members of which a sample has one or the other."""
_MARKUP = frozenset(["htm", "html", "md", "srt", "vtt", "xml", "yaml", "yml"])
_TEXT = _MARKUP | {"caption", "cls", "cls2", "csv", "jsonl", "text", "transcript", "tsv", "txt"}
_PICKLE = frozenset(["pickle", "pkl", "pt", "pth", "pyd"])


@dataclass(slots=True, kw_only=True)
class TarSample:
    """Members of one sample while it is read: content by extension, None where the projection leaves it out."""

    key: str
    members: dict[str, bytes | None] = field(default_factory=dict)
    fault: str | None = None


class TarBlock:
    """Samples of a block, and the fault that ends the shard as one more row."""

    def __init__(self, samples: list[TarSample], *, fault: str | None, projection: Projection) -> None:
        self._samples = samples if fault is None else [*samples, TarSample(key="", fault=fault)]
        self._text_fields = frozenset((projection.text_path or "").split(OR))
        self.num_rows = len(self._samples)
        self.size_bytes = sum(len(body or b"") for sample in samples for body in sample.members.values())

    def column(self, path: str, rows: npt.NDArray[np.int64]) -> list[object]:
        """Values of a member: `txt`, or `json.caption` for what is inside a JSON member, or `__key__`.

        Of `jpg;png` it is the first one that the sample has.
        """
        return [self._value(self._samples[row], path) for row in rows.tolist()]

    def row(self, index: int) -> dict[str, object] | RowFault:
        """A sample as {"__key__": key, extension: value}; content that is not text stays bytes."""
        sample = self._samples[index]
        if sample.fault is not None:
            return RowFault(reason=sample.fault)
        row: dict[str, object] = {KEY: sample.key}
        for extension, body in sample.members.items():
            value = body if body is None or _last(extension) in _PICKLE else self._decode(extension, body, "")
            if isinstance(value, RowFault):
                return value
            row[extension] = value
        return row

    def _value(self, sample: TarSample, path: str) -> object:
        if sample.fault is not None:
            return RowFault(reason=sample.fault)
        if path == KEY:
            return sample.key
        for extension, rest in (pair for single in path.split(OR) for pair in heads(single)):
            body = sample.members.get(extension)
            if body is not None:
                return self._decode(extension, body, rest)
        return None

    def _decode(self, extension: str, body: bytes, rest: str) -> object:
        last = _last(extension)
        if last in _PICKLE:
            return RowFault(reason=f"member .{extension} is a pickle: pickles are never opened")
        if rest or last == "json":
            return _json_value(extension, body, rest)
        return as_text(body) if last in _TEXT or extension in self._text_fields else body


def is_wanted(extension: str, paths: tuple[str, ...] | None) -> bool:
    """Whether a member is read where `paths` are; None reads all."""
    if paths is None:
        return True
    singles = (single for path in paths for single in path.split(OR))
    return any(single == extension or single.startswith(extension + ".") for single in singles)


def _last(extension: str) -> str:
    return extension.rpartition(".")[2].lower()


def _json_value(extension: str, body: bytes, path: str) -> object:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return RowFault(reason=f"broken JSON in member .{extension}: {error}")
    if not path:
        return document
    return value_at(document, path) if isinstance(document, dict) else None
