"""Values of MDS columns (MosaicML Streaming, format version 2): bytes by the name of their encoding.

# B = bytes of one value, K = elements of a list
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import orjson

from .blocks import RowFault, as_text

_INTEGERS = tuple(f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64))
_FLOATS = ("float16", "float32", "float64")
_ARRAY_TYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")
_WORD = "<u4"


def decode_value(encoding: str, data: bytes, column: str) -> object:
    """One value. Images stay as they were encoded; pickles are never opened.

    Args:
        encoding: As index.json has it: `str`, `jpeg`, `ndarray:int32`, ...
        data: The value's bytes.
        column: Its name, for reasons.

    Returns:
        str, bytes, int, float, a list of bytes, a numpy array, a JSON value; or a `RowFault`.
    """
    name, _, arguments = encoding.partition(":")
    if name == "ndarray":
        return _guarded(lambda value: _array(value, arguments), data, column, encoding)
    decode = _DECODERS.get(name)
    if decode is None:
        return RowFault(reason=_refusal(name, column))
    return _guarded(decode, data, column, encoding)


def _guarded(decode: Callable[[bytes], object], data: bytes, column: str, encoding: str) -> object:
    try:
        return decode(data)
    except (ValueError, IndexError, TypeError, KeyError) as error:
        return RowFault(reason=f"column {column} is no {encoding}: {' '.join(str(error).split())[:100]}")


def _refusal(name: str, column: str) -> str:
    if name == "pkl":
        return f"column {column} is a pickle: pickles are never opened"
    if "pil" in name:
        return f"column {column} holds raw pixels ({name}): write it as jpeg or png"
    return f"column {column} has the unknown encoding {name}"


def _scalar(dtype: str) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        (value,) = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))
        return value.item()

    return decode


def _digits(data: bytes) -> object:
    return int(data.decode())


def _number(data: bytes) -> object:
    return float(data.decode())


def _list_of_bytes(data: bytes, start: int) -> list[bytes]:
    """Values behind each other: their number and their sizes (uint32) stand at `start`."""
    (count,) = np.frombuffer(data, _WORD, 1, start).tolist()
    sizes_K = np.frombuffer(data, _WORD, count, start + 4).astype(np.int64)
    ends_K = start + 4 + 4 * count + np.cumsum(sizes_K)
    if count and int(ends_K[-1]) != len(data):
        raise ValueError(f"{count} values end at byte {int(ends_K[-1])} of {len(data)}")
    return [data[end - size : end] for end, size in zip(ends_K.tolist(), sizes_K.tolist(), strict=True)]


def _array(data: bytes, arguments: str) -> object:
    """Type and shape stand in the encoding, or before the values."""
    dtype, _, dims = arguments.partition(":")
    at = 0
    if not dtype:
        dtype, at = _ARRAY_TYPES[data[0]], 1
    if dims:
        shape = [int(dim) for dim in dims.split(",")]
    else:
        num_axes, shape_type = data[at] >> 2, np.dtype(_SHAPE_TYPES[data[at] % 4])
        shape = np.frombuffer(data, shape_type, num_axes, at + 1).tolist()
        at += 1 + num_axes * shape_type.itemsize
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<"), offset=at).reshape(shape)


_DECODERS: dict[str, Callable[[bytes], object]] = {
    "bytes": bytes,
    "jpeg": bytes,
    "png": bytes,
    "str": as_text,
    "str_decimal": as_text,
    "str_int": _digits,
    "str_float": _number,
    "json": orjson.loads,
    "int": _scalar("int64"),
    "jpeg_array": lambda data: _list_of_bytes(data, 0),
    "jpegarray": lambda data: _list_of_bytes(data, 0),
    "list[jpeg]": lambda data: _list_of_bytes(data, 4),
    "list[png]": lambda data: _list_of_bytes(data, 4),
    **{name: _scalar(name) for name in (*_INTEGERS, *_FLOATS)},
}
