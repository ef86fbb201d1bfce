"""Pictures and clips for media.py: mosaics of the photographs in examples/, and slow pans over them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]
TILE = 200
_SHARDS = Path(__file__).parents[1] / "examples" / "data" / "pictures"


def photographs() -> list[Pixels]:
    """The larger JPEGs of the demo, their middle: uint8 [TILE, TILE, 3] each."""
    found = []
    for shard in sorted(_SHARDS.glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                file = tar.extractfile(member) if member.name.endswith(".jpg") else None
                if file is not None:
                    found.append(_middle(np.asarray(Image.open(io.BytesIO(file.read())).convert("RGB"))))
    found = [photo for photo in found if photo.shape == (TILE, TILE, 3)]
    if not found:
        raise SystemExit(f"{_SHARDS} holds no photographs: run examples/make_media.py")
    return found


def _middle(pixels: Pixels) -> Pixels:
    top, left = ((side - TILE) // 2 if side > TILE else 0 for side in pixels.shape[:2])
    return pixels[top : top + TILE, left : left + TILE]


def mosaic(photos: list[Pixels], height: int, width: int, seed: int) -> Pixels:
    """Photographs side by side, in an order of the seed's, cut to a size."""
    rng = np.random.default_rng(seed)
    rows, columns = -(-height // TILE), -(-width // TILE)
    chosen = rng.integers(0, len(photos), (rows, columns))
    lines = [np.concatenate([photos[i] for i in line], axis=1) for line in chosen]
    return np.ascontiguousarray(np.concatenate(lines)[:height, :width])


def jpeg(pixels: Pixels) -> bytes:
    """As cameras and web sites write it: quality 90, chroma at half the size."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90, subsampling="4:2:0")
    return buffer.getvalue()


def clip(photos: list[Pixels], height: int, width: int, num_frames: int, seed: int) -> bytes:
    """An H.264 clip in MP4, 30 frames a second, that moves 4 pixels a frame over a mosaic."""
    wide = mosaic(photos, height, width + 4 * num_frames, seed)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as output:
        stream = output.add_stream("libx264", rate=30)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "23", "g": "48"}
        for i in range(num_frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(wide[:, 4 * i : 4 * i + width]), "rgb24")
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return buffer.getvalue()
