"""The packets of a video and when each frame is shown.

# F = frames that are shown
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import av
import numpy as np
import numpy.typing as npt
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream

from ..sources.blocks import ContentError
from .container_bounds import is_cut
from .containers import VIDEO_KINDS, checked_kind, opened
from .file_type import FileType
from .limits import MediaLimits
from .movie_boxes import read_tracks

VideoPacket: TypeAlias = "Packet[VideoStream]"
# Codecs whose key frames need nothing before them.
_JUMPING_CODECS = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "libdav1d", "mpeg4", "mjpeg"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packets:
    """A video as its container holds it.

    Attributes:
        height: As stored.
        width: As stored.
        orientation: How it is turned for showing, as an EXIF orientation.
        packets: In decoding order, from the first key frame on.
        pts_F: int64, ticks at which each frame is shown, ascending.
        times_F: float64, the same in seconds.
        end_s: When the last frame ends.
        is_timed: Whether the container says when frames are shown; if not (AVI), they are shown in turn.
        is_jumping: Whether decoding may begin at any key frame.
        context: A decoder with one thread, to which nothing was given yet.
    """

    height: int
    width: int
    orientation: int
    packets: list[VideoPacket]
    pts_F: npt.NDArray[np.int64]
    times_F: npt.NDArray[np.float64]
    end_s: float
    is_timed: bool
    is_jumping: bool
    context: VideoCodecContext

    @property
    def is_turned(self) -> bool:
        """Whether height and width change places."""
        return self.orientation >= 5


def demux(data: bytes, limits: MediaLimits) -> Packets:
    """Take a video's packets from its container; nothing is decoded.

    Raises:
        ContentError: Another kind of file, over a limit, cut, or without video.
    """
    kind = checked_kind(data, limits, "a video", VIDEO_KINDS)
    orientation = _orientation(data, kind)
    with opened(data, kind) as container:
        stream = _video_stream(container.streams.video)
        context = stream.codec_context
        limits.check_pixels(context.height, context.width)
        found = [packet for packet in container.demux(stream) if packet.size]
        num_whole = sum(1 for _ in itertools.takewhile(lambda packet: not packet.is_corrupt, found))
        if num_whole < len(found) or is_cut(data, kind):
            raise ContentError(_cut_reason(num_whole, stream.frames, kind))
        return _arranged(found, stream, orientation, has_times=kind is not FileType.AVI)


def _orientation(data: bytes, kind: FileType) -> int:
    """Of the first video track of a movie; other containers are upright."""
    if kind is not FileType.MP4:
        return 1
    return next((track.orientation for track in read_tracks(data) if track.is_video), 1)


def _video_stream(streams: Iterable[VideoStream]) -> VideoStream:
    for stream in streams:
        if stream.disposition & av.stream.Disposition.attached_pic:
            continue  # a cover picture
        if stream.codec_context is None:
            raise ContentError("video codec is not known")
        # The demuxer has opened nothing yet: set before the first packet is decoded.
        stream.codec_context.thread_count = 1
        return stream
    raise ContentError("no video stream")


def _cut_reason(num_whole: int, num_declared: int, kind: FileType) -> str:
    if num_declared > num_whole:
        return f"cut after frame {num_whole} of {num_declared}"
    return f"truncated {kind}"


def _arranged(found: list[VideoPacket], stream: VideoStream, orientation: int, *, has_times: bool) -> Packets:
    first_key = next((i for i, packet in enumerate(found) if packet.is_keyframe), 0)
    packets = found[first_key:]
    shown = [packet for packet in packets if not packet.is_discard]
    if not shown or stream.time_base is None:
        raise ContentError("video without frames")
    # What FFmpeg says for AVI are decoding times that it made up itself: frames come in turn there.
    is_timed = has_times and all(packet.pts is not None for packet in packets)
    ticks = [packet.pts if is_timed else packet.dts for packet in shown]
    if any(tick is None for tick in ticks):
        raise ContentError("video without times")
    pts_F = np.sort(np.asarray(ticks, np.int64))
    context = stream.codec_context
    return Packets(
        height=context.height,
        width=context.width,
        orientation=orientation,
        packets=packets,
        pts_F=pts_F,
        times_F=np.asarray(pts_F * float(stream.time_base), np.float64),
        end_s=float((pts_F[-1] + _last_duration(shown, pts_F)) * stream.time_base),
        is_timed=is_timed,
        is_jumping=is_timed and context.name in _JUMPING_CODECS,
        context=context,
    )


def _last_duration(shown: list[VideoPacket], pts_F: npt.NDArray[np.int64]) -> int:
    """Ticks that the last frame is shown; the usual distance of frames where the container does not say."""
    last = max(shown, key=lambda packet: packet.pts if packet.pts is not None else packet.dts or 0)
    if last.duration:
        return last.duration
    return int(np.median(np.diff(pts_F))) if len(pts_F) > 1 else 0
