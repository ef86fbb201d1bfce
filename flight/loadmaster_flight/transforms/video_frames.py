"""Frames of a video by their place in showing order, decoded from the nearest key frame on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import av
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter

from ..sources.blocks import ContentError
from .limits import MediaLimits
from .planes import Planes, rgb_planes, turn
from .video_packets import Packets


class FrameReader:
    """Reads frames in ascending order. For one thread.

    Args:
        packets: Of the video; its decoder is used up.
        size: Height and width to which frames are scaled, as stored.
        limits: Frames may change their size within a stream: checked for each.
    """

    def __init__(self, packets: Packets, size: tuple[int, int], limits: MediaLimits) -> None:
        self._packets, self._size, self._limits = packets, size, limits
        self._reformatter = VideoReformatter()
        self._next_packet = 0
        self._num_seen = 0
        self._pending: deque[VideoFrame] = deque()
        self._keys = [(i, packet.pts or 0) for i, packet in enumerate(packets.packets) if packet.is_keyframe]

    def read(self, index: int) -> Planes:
        """Decode frame `index` (from 0, in showing order) to RGB planes, turned as the container says.

        Raises:
            ContentError: The frame, or one that it needs, is damaged.
        """
        try:
            frame = self._find(index)
        except av.FFmpegError as error:
            raise ContentError(f"frame {index} does not decode") from error
        if frame is None or frame.is_corrupt:
            raise ContentError(f"frame {index} is damaged")
        self._limits.check_pixels(frame.height, frame.width)
        planes = rgb_planes(frame, self._size, self._reformatter)
        return turn(planes, self._packets.orientation)

    def _find(self, index: int) -> VideoFrame | None:
        wanted = int(self._packets.pts_F[index])
        self._jump(wanted)
        for frame in self._frames():
            if not self._packets.is_timed:
                self._num_seen += 1
                if self._num_seen > index:
                    return frame
            elif frame.pts is not None and frame.pts >= wanted:
                return frame if frame.pts == wanted else None
        return None

    def _jump(self, wanted: int) -> None:
        """Go on at the last key frame before the wanted one, if decoding has not come so far."""
        if not self._packets.is_jumping:
            return
        starts = [i for i, pts in self._keys if i > self._next_packet and pts <= wanted]
        if not starts or any(frame.pts == wanted for frame in self._pending):
            return
        if self._next_packet:
            self._packets.context.flush_buffers()
        self._pending.clear()
        self._next_packet = starts[-1]

    def _frames(self) -> Iterator[VideoFrame]:
        packets, context = self._packets.packets, self._packets.context
        while True:
            while self._pending:
                yield self._pending.popleft()
            if self._next_packet > len(packets):
                return
            packet = packets[self._next_packet] if self._next_packet < len(packets) else None
            self._next_packet += 1
            self._pending.extend(context.decode(packet))
