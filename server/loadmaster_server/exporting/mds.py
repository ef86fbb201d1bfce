"""MDS shards (MosaicML Streaming, format version 2): one sample a microbatch.

# B = samples of a shard, V = columns of variable size
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from loadmaster.batch import Batch, Microbatch

SHARD_BYTES = 1 << 26
_INT = "int"
_ARRAY = "ndarray:int32"
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")


class MdsWriter:
    """Writes microbatches as samples of an MDS folder, in the order in which they come. `close` it.

    A sample has `tokens`, `labels` (int32, both of the whole microbatch, padding included) and `cu_seqlens` (int32)
    as a rank that is not cut by cp receives them; `step`, `microbatch` (of all dp ranks together, from 0) and
    `global_valid_tokens`; `sample_ids`, a JSON list with the documents of `cu_seqlens` in order.

    Args:
        folder: Empty; gets shards and index.json.
        shard_bytes: A shard is closed before it would become larger than this.
    """

    COLUMNS: ClassVar[dict[str, str]] = {
        "cu_seqlens": _ARRAY,
        "global_valid_tokens": _INT,
        "labels": _ARRAY,
        "microbatch": _INT,
        "sample_ids": "json",
        "step": _INT,
        "tokens": _ARRAY,
    }
    """Column -> encoding, in the order of their values: by name, as MDSWriter has it."""

    def __init__(self, folder: Path, *, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder, self._shard_bytes = folder, shard_bytes
        self._config = _config(shard_bytes)
        self._head_bytes = len(self._config_json()) + 8
        self._samples: list[bytes] = []
        self._size = self._head_bytes
        self._told: list[dict[str, Any]] = []

    def add(self, batch: Batch, microbatch: Microbatch, number: int) -> None:
        """Append a microbatch; `number` is its place in the step."""
        values: dict[str, Any] = {
            "cu_seqlens": microbatch.cu_seqlens,
            "global_valid_tokens": batch.global_valid_tokens,
            "labels": microbatch.labels,
            "microbatch": number,
            "sample_ids": microbatch.documents.sample_ids(batch.source_names),
            "step": batch.step,
            "tokens": microbatch.tokens,
        }
        sample = _sample(values)
        if self._samples and self._size + 4 + len(sample) > self._shard_bytes:
            self._end_shard()
        self._samples.append(sample)
        self._size += 4 + len(sample)

    def close(self) -> dict[str, Any]:
        """Write the last shard and the index; returns what the export's own notes say of it."""
        if self._samples:
            self._end_shard()
        (self._folder / "index.json").write_text(json.dumps({"version": 2, "shards": self._told}, sort_keys=True))
        return {"shards": len(self._told), "columns": self.COLUMNS}

    def _end_shard(self) -> None:
        config, name = self._config_json(), f"shard.{len(self._told):05}.mds"
        offsets_B = np.cumsum([4 * (len(self._samples) + 2) + len(config), *map(len, self._samples)])
        with (self._folder / name).open("wb") as file:
            file.write(struct.pack("<I", len(self._samples)) + offsets_B.astype("<u4").tobytes() + config)
            file.writelines(self._samples)
        raw = {"basename": name, "bytes": int(offsets_B[-1]), "hashes": {}}
        self._told.append(self._config | {"samples": len(self._samples), "raw_data": raw, "zip_data": None})
        self._samples, self._size = [], self._head_bytes

    def _config_json(self) -> bytes:
        return json.dumps(self._config, sort_keys=True).encode()


def _config(shard_bytes: int) -> dict[str, Any]:
    encodings = list(MdsWriter.COLUMNS.values())
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": shard_bytes,
        "column_names": list(MdsWriter.COLUMNS),
        "column_encodings": encodings,
        "column_sizes": [8 if encoding == _INT else None for encoding in encodings],
    }


def _sample(values: dict[str, Any]) -> bytes:
    """Sizes of the columns whose size varies (uint32), then all values."""
    encoded = [_encoded(encoding, values[name]) for name, encoding in MdsWriter.COLUMNS.items()]
    sizes_V = [len(v) for v, kind in zip(encoded, MdsWriter.COLUMNS.values(), strict=True) if kind != _INT]
    return struct.pack(f"<{len(sizes_V)}I", *sizes_V) + b"".join(encoded)


def _encoded(encoding: str, value: Any) -> bytes:
    if encoding == _INT:
        return struct.pack("<q", value)
    if encoding == _ARRAY:
        return _array(np.asarray(value))
    return json.dumps(value).encode()


def _array(values: np.ndarray[Any, Any]) -> bytes:
    """An array of one axis: a byte with the number of axes and the type of the shape, the shape, the values."""
    size = len(values)
    kind = next(i for i in range(len(_SHAPE_TYPES)) if size < 1 << (8 << i))
    return bytes([1 << 2 | kind]) + np.array(size, _SHAPE_TYPES[kind]).tobytes() + values.astype("<i4").tobytes()
