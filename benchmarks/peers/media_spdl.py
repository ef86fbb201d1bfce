"""A peer of media.py: spdl, which decodes and scales with the system's FFmpeg on threads. Patches are cut by ours."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


def missing() -> str | None:
    """Why spdl cannot be measured here; None where it can."""
    if importlib.util.find_spec("spdl") is None:
        return "not installed (extra `peers`)"
    import spdl.io

    try:
        spdl.io.decode_config()
    except RuntimeError:
        return "finds no FFmpeg libraries on this system"
    return None


def image_decoder(size: tuple[int, int]) -> Callable[[bytes], Pixels]:
    """Decodes a JPEG to uint8 [1, H, W, 3]."""
    import spdl.io

    scaling = spdl.io.get_video_filter_desc(scale_height=size[0], scale_width=size[1], scale_mode=None)
    return lambda data: spdl.io.to_numpy(spdl.io.load_image(data, filter_desc=scaling))[np.newaxis]


def clip_decoder(size: tuple[int, int], fps: int) -> Callable[[bytes], Pixels]:
    """Decodes a clip to uint8 [T, H, W, 3] at a frame rate."""
    import spdl.io

    scaling = spdl.io.get_video_filter_desc(
        frame_rate=(fps, 1), scale_height=size[0], scale_width=size[1], scale_mode=None
    )
    return lambda data: spdl.io.to_numpy(spdl.io.load_video(data, filter_desc=scaling))


def run_threads(decode: Callable[[bytes], None], files: Sequence[bytes]) -> None:
    """Run a decoder over files in a pipeline of two threads."""
    from spdl.pipeline import PipelineBuilder

    pipeline = PipelineBuilder().add_source(files).pipe(decode_one(decode), concurrency=2).add_sink(8)
    with (built := pipeline.build(num_threads=2)).auto_stop():
        for _ in built.get_iterator():
            pass


def decode_one(decode: Callable[[bytes], None]) -> Callable[[bytes], int]:
    """A stage must return something: a count."""

    def stage(data: bytes) -> int:
        decode(data)
        return 1

    return stage
