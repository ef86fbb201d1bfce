"""A block of JSON lines: bytes and the places of the lines in them; a line is parsed when it is asked for.

# B = bytes of the block, N = requested rows, R = rows
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from .blocks import RowFault, value_at

Int64Array = npt.NDArray[np.int64]
_NEWLINE, _SPACE = 10, 32
_BOM = b"\xef\xbb\xbf"


class JsonBlock:
    """Lines of a block. Blank lines are no rows, so a row's number counts the others.

    Args:
        data: Whole lines; the last one may lack its newline.
        is_first: Whether `data` is the beginning of the file, where a byte order mark may stand.
        fault: A reason that ends the shard, as one more row.
    """

    def __init__(self, data: bytes, *, is_first: bool = False, fault: str | None = None) -> None:
        self._data = data
        self._starts_R, self._ends_R = _lines(data, first=len(_BOM) if is_first and data.startswith(_BOM) else 0)
        self._fault = fault
        self.num_rows = len(self._starts_R) + (fault is not None)
        self.size_bytes = len(data)

    def column(self, path: str, rows: Int64Array) -> list[object]:
        """Values of a dotted path through nested objects."""
        parsed = self._parse(rows)
        is_plain = "." not in path
        return [
            row if isinstance(row, RowFault) else row.get(path) if is_plain else value_at(row, path) for row in parsed
        ]

    def row(self, index: int) -> dict[str, object] | RowFault:
        """A line's whole object."""
        return self._parse(np.array([index]))[0]

    def _parse(self, rows_N: Int64Array) -> list[dict[str, Any] | RowFault]:
        view = memoryview(self._data)
        inside_N = np.minimum(rows_N, max(0, len(self._starts_R) - 1))
        if self._fault is not None and len(self._starts_R) == 0:
            return [RowFault(reason=self._fault)] * len(rows_N)
        starts, ends = self._starts_R[inside_N].tolist(), self._ends_R[inside_N].tolist()
        parsed = [_parse_line(view[a:b]) for a, b in zip(starts, ends, strict=True)]
        if self._fault is not None:
            for place in np.flatnonzero(rows_N == self.num_rows - 1).tolist():
                parsed[place] = RowFault(reason=self._fault)
        return parsed


def _lines(data: bytes, *, first: int) -> tuple[Int64Array, Int64Array]:
    """Starts and ends (without newline) of the lines that are not blank."""
    bytes_B = np.frombuffer(data, np.uint8)
    ends_R = np.flatnonzero(bytes_B == _NEWLINE)
    if len(data) > first and data[-1] != _NEWLINE:
        ends_R = np.append(ends_R, len(data))
    starts_R = np.concatenate([np.array([first], np.int64), ends_R[:-1] + 1]) if len(ends_R) else ends_R
    doubtful = np.flatnonzero((ends_R <= starts_R) | (bytes_B[np.minimum(starts_R, len(data) - 1)] <= _SPACE))
    blank = [i for i in doubtful.tolist() if not data[starts_R[i] : ends_R[i]].strip()]
    return np.delete(starts_R, blank), np.delete(ends_R, blank)


def _parse_line(line: memoryview) -> dict[str, Any] | RowFault:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return RowFault(reason=_reason(bytes(line), error))
    if isinstance(row, dict):
        return row
    return RowFault(reason=f"a line must be a JSON object, got {type(row).__name__}")


def _reason(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as unicode_error:
        return f"invalid UTF-8 at byte {unicode_error.start} of the line"
    if "surrogate" in str(error):
        return f"lone surrogate at byte {error.pos} of the line"
    return f"broken JSON line: {error}"
