"""A prepared Energon dataset: WebDataset shards and the files of its .nv-meta folder."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

CAPTIONS = {
    "sample_type": {"__module__": "megatron.energon", "__class__": "CaptioningSample"},
    "field_map": {"image": "png,jpg", "caption": "json[text]"},
}
SAMPLES_PER_SHARD = 4


def write_energon(
    folder: Path,
    *,
    dataset: Mapping[str, Any],
    exclude: Sequence[str] = (),
    images: Sequence[bytes] | None = None,
) -> Path:
    """Three shards of images and captions: two of the train split, one of val."""
    meta = folder / ".nv-meta"
    meta.mkdir(parents=True)
    for shard in range(3):
        with tarfile.open(folder / f"shard_{shard}.tar", "w") as archive:
            for i in range(SAMPLES_PER_SHARD * shard, SAMPLES_PER_SHARD * (shard + 1)):
                image = images[i % len(images)] if images else b"image %d" % i
                for name, body in ((f"{i:06}.jpg", image), (f"{i:06}.json", _caption(i))):
                    info = tarfile.TarInfo(name)
                    info.size = len(body)
                    archive.addfile(info, io.BytesIO(body))
    splits = {"split_parts": {"train": ["shard_{0..1}.tar"], "val": ["shard_2.tar"]}, "exclude": list(exclude)}
    counts = {f"shard_{shard}.tar": SAMPLES_PER_SHARD for shard in range(3)}
    (meta / "split.yaml").write_text(yaml.safe_dump(splits))
    (meta / ".info.json").write_text(json.dumps({"energon_version": "7.4.1", "shard_counts": counts}))
    (meta / "dataset.yaml").write_text(yaml.safe_dump(dict(dataset)))
    return folder


def _caption(i: int) -> bytes:
    return json.dumps({"text": f"caption {i}"}).encode()
