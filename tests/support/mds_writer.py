"""A writer of MDS shards by the published format (MosaicML Streaming, version 2), independent of the reader."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

FIXED = {"int": ("<q", 8), "int32": ("<i", 4), "uint8": ("<B", 1), "float64": ("<d", 8)}


def encoded(encoding: str, value: Any) -> bytes:
    """A value's bytes; what is bytes already stays so, as in MDSWriter."""
    if isinstance(value, bytes):
        return value
    if encoding in FIXED:
        return struct.pack(FIXED[encoding][0], value)
    if encoding == "json":
        return json.dumps(value).encode()
    if encoding == "jpeg_array":
        return struct.pack(f"<I{len(value)}I", len(value), *map(len, value)) + b"".join(value)
    if encoding == "ndarray:int32":
        return bytes([1 << 2]) + bytes([len(value)]) + struct.pack(f"<{len(value)}i", *value)
    return str(value).encode()


def shard_bytes(columns: Mapping[str, str], samples: Sequence[Mapping[str, Any]]) -> bytes:
    """One shard of samples."""
    names = sorted(columns)
    bodies = []
    for sample in samples:
        values = [encoded(columns[name], sample[name]) for name in names]
        sizes = [len(value) for name, value in zip(names, values, strict=True) if columns[name] not in FIXED]
        bodies.append(struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(values))
    config = json.dumps(_config(columns), sort_keys=True).encode()
    offsets = [4 + 4 * (len(bodies) + 1) + len(config)]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    return struct.pack(f"<{1 + len(offsets)}I", len(bodies), *offsets) + config + b"".join(bodies)


def write_mds(
    folder: Path, columns: Mapping[str, str], shards: Sequence[Sequence[Mapping[str, Any]]], *, is_packed: bool = False
) -> Path:
    """A folder of shards with its index.json."""
    folder.mkdir(parents=True, exist_ok=True)
    told = []
    for number, samples in enumerate(shards):
        raw = shard_bytes(columns, samples)
        name = f"shard.{number:05}.mds"
        entry = _config(columns) | {
            "samples": len(samples),
            "raw_data": {"basename": name, "bytes": len(raw), "hashes": {}},
            "zip_data": None,
        }
        data = raw
        if is_packed:
            data, name = pa.compress(raw, "zstd", asbytes=True), f"{name}.zstd"
            entry["zip_data"] = {"basename": name, "bytes": len(data), "hashes": {}}
            entry["compression"] = "zstd:3"
        (folder / name).write_bytes(data)
        told.append(entry)
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": told}))
    return folder


def _config(columns: Mapping[str, str]) -> dict[str, Any]:
    names = sorted(columns)
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": 1 << 26,
        "column_names": names,
        "column_encodings": [columns[name] for name in names],
        "column_sizes": [FIXED[columns[name]][1] if columns[name] in FIXED else None for name in names],
    }
