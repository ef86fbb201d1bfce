"""Video: when its frames are shown, from the container alone, and the frames of chosen times in RGB.

# T = chosen times, F = frames of the video, H, W = height, width
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .limits import MediaLimits
from .planes import Pixels
from .video_frames import FrameReader
from .video_packets import demux

Float64Array = npt.NDArray[np.float64]

_SAME_TIME_S = 1e-6  # a computed time may miss a frame's own by the last bit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoInfo:
    """What a container says of its video.

    Attributes:
        height: As shown, after the display matrix.
        width: As shown.
        times_F: float64, seconds at which each frame is first shown, ascending; the container's clock.
        duration_s: From the first frame's time to the end of the last one.
    """

    height: int
    width: int
    times_F: Float64Array
    duration_s: float


def probe_video(data: bytes, limits: MediaLimits) -> VideoInfo:
    """Read size and frame times of a video; packets are counted, no frame is decoded.

    Args:
        data: An MP4 or QuickTime, Matroska or WebM, AVI or GIF file.
        limits: Checked here.

    Raises:
        ContentError: Another kind of file, over a limit, cut, or without video.
    """
    packets = demux(data, limits)
    return VideoInfo(
        height=packets.width if packets.is_turned else packets.height,
        width=packets.height if packets.is_turned else packets.width,
        times_F=packets.times_F,
        duration_s=packets.end_s - float(packets.times_F[0]),
    )


def chosen_times(info: VideoInfo, fps: float, min_frames: int, max_frames: int, multiple: int) -> Float64Array:
    """Times at which frames of a video are taken: evenly spread from its first frame.

    Args:
        info: Of the video.
        fps: Wanted frames a second.
        min_frames: At least so many, as long as the video has them.
        max_frames: At most so many.
        multiple: The number of times is a multiple of it (frames of a patch), and at least one multiple.

    Returns:
        float64 [T], seconds on the container's clock.
    """
    num_frames = len(info.times_F)
    wanted = max(min_frames, min(round(info.duration_s * fps), max_frames))
    count = max(1, min(wanted, num_frames) // multiple) * multiple
    steps_T = np.arange(count, dtype=np.float64) / count
    return np.asarray(info.times_F[0] + steps_T * info.duration_s, np.float64)


def decode_video(data: bytes, times_T: Float64Array, size: tuple[int, int] | None, limits: MediaLimits) -> Pixels:
    """Decode the frames shown at given times.

    Args:
        data: A file that `probe_video` takes.
        times_T: Seconds, ascending; the frame of a time is the last one whose own time is not after it, and the
            first frame for an earlier time (to a microsecond). A frame may be asked for more than once.
        size: Wanted (height, width) as shown; None keeps the video's own.
        limits: Checked before anything is decoded.

    Returns:
        uint8 [T, H, W, 3], RGB, turned as the container says; its channels are not next to each other in memory.

    Raises:
        ContentError: As `probe_video`, or a frame that is asked for is damaged or missing.
    """
    packets = demux(data, limits)
    index_T = np.maximum(np.searchsorted(packets.times_F, times_T + _SAME_TIME_S, side="right") - 1, 0)
    stored = (packets.height, packets.width) if size is None else size[::-1] if packets.is_turned else size
    shown = stored[::-1] if packets.is_turned else stored
    frames_T3HW = np.empty((len(index_T), 3, *shown), np.uint8)
    reader = FrameReader(packets, stored, limits)
    previous = -1
    for place, index in enumerate(index_T.tolist()):
        if index < previous:
            raise ValueError(f"times_T must be ascending, got {times_T[place]} after {times_T[place - 1]}")
        if index == previous:
            frames_T3HW[place] = frames_T3HW[place - 1]
            continue
        for channel, plane in enumerate(reader.read(index)):
            frames_T3HW[place, channel] = plane
        previous = index
    return np.moveaxis(frames_T3HW, 1, -1)
