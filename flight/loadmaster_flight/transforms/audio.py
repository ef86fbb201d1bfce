"""Audio: exact lengths from the container alone, and the clip as one channel at a rate.

# N = samples
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import av
import numpy as np
import numpy.typing as npt
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.packet import Packet

from ..sources.blocks import ContentError
from .container_bounds import is_cut
from .containers import AUDIO_KINDS, checked_kind, opened
from .file_type import FileType
from .limits import MediaLimits
from .movie_boxes import read_tracks

Int16Array = npt.NDArray[np.int16]
AudioPacket: TypeAlias = "Packet[AudioStream]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioInfo:
    """What a container says of its sound.

    Attributes:
        num_samples: Of each channel, at the clip's own rate, without what its encoder put before and behind it.
        rate: Samples a second.
        channels: Number of channels.
    """

    num_samples: int
    rate: int
    channels: int

    @property
    def duration_s(self) -> float:
        """Length of the clip."""
        return self.num_samples / self.rate

    def num_samples_at(self, rate: int) -> int:
        """Samples of the clip at another rate, rounded half up; what `decode_audio` returns."""
        return (2 * self.num_samples * rate + self.rate) // (2 * self.rate)


def probe_audio(data: bytes, limits: MediaLimits) -> AudioInfo:
    """Read length, rate and channels of a clip; packets are counted, none is decoded.

    Args:
        data: A WAV, FLAC, MP3, Ogg, AAC, MP4 (m4a) or Matroska file.
        limits: Its bytes are checked here.

    Raises:
        ContentError: Another kind of file, over a limit, cut, or without sound.
    """
    info, _, _ = _demux(data, limits)
    return info


def decode_audio(data: bytes, rate: int, limits: MediaLimits, max_samples: int | None = None) -> Int16Array:
    """Decode a clip to one channel at a rate.

    Args:
        data: A file that `probe_audio` takes.
        rate: Samples a second of the result.
        limits: Checked before anything is decoded; `max_pixels` bounds the samples of the result.
        max_samples: Decode no more of a longer clip than these first samples of the result; None: all of it.

    Returns:
        int16 [N], the mean of the channels, resampled; N is what the probe's `num_samples_at(rate)` says: codecs that
        do not tell their length to the sample get zeros, or lose what is over.

    Raises:
        ContentError: As `probe_audio`, or the sound is damaged.
    """
    info, packets, context = _demux(data, limits)
    whole = info.num_samples_at(rate)
    num_samples = whole if max_samples is None else min(whole, max_samples)
    limits.check_samples(num_samples)
    mono_N = np.zeros(num_samples, np.int16)
    at = 0
    try:
        for frame in _resampled(_frames(packets, context), rate, limits):
            part = np.frombuffer(memoryview(frame.planes[0]), np.int16)[: frame.samples][: len(mono_N) - at]
            mono_N[at : at + len(part)] = part
            at += len(part)
            if at == max_samples:
                break
    except (av.FFmpegError, ValueError) as error:  # PyAV says ValueError where frames change their layout
        raise ContentError("damaged audio") from error
    return mono_N


def _demux(data: bytes, limits: MediaLimits) -> tuple[AudioInfo, list[AudioPacket], AudioCodecContext]:
    kind = checked_kind(data, limits, "audio", AUDIO_KINDS)
    if is_cut(data, kind):
        raise ContentError(f"truncated {kind}")
    if kind is FileType.MP4:
        read_tracks(data)
    with opened(data, kind) as container:
        stream = next(iter(container.streams.audio), None)
        if stream is None:
            raise ContentError("no audio stream")
        context = stream.codec_context
        if context is None or not context.sample_rate or not context.channels:
            raise ContentError("audio codec is not known")
        context.thread_count = 1
        packets = [packet for packet in container.demux(stream) if packet.size]
        # A WAV whose writer did not know its length ends in a part of a packet.
        if kind is not FileType.WAV and any(packet.is_corrupt for packet in packets):
            raise ContentError(f"truncated {kind}")
        info = AudioInfo(
            num_samples=_num_samples(packets, context.sample_rate), rate=context.sample_rate, channels=context.channels
        )
        _check_declared(info, stream, kind)
    if info.num_samples < 1:
        raise ContentError("no audio samples")
    return info, packets, context


def _check_declared(info: AudioInfo, stream: AudioStream, kind: FileType) -> None:
    """A FLAC's header says how long it is (0: not known); the packets say how much of it is there."""
    if kind is not FileType.FLAC or not stream.duration or stream.time_base is None:
        return
    if info.num_samples < int(stream.duration * stream.time_base * info.rate):
        raise ContentError(f"truncated {kind}")


def _num_samples(packets: list[AudioPacket], rate: int) -> int:
    """From the first packet's time to the end of the last, less what the packets say is to be left out."""
    if not packets:
        return 0
    ticks, start, end = 0, None, 0
    for packet in packets:
        at = packet.pts if packet.pts is not None else ticks
        start = at if start is None else min(start, at)
        ticks = at + (packet.duration or 0)
        end = max(end, ticks)
    samples = round((end - (start or 0)) * packets[0].time_base * rate)
    return max(0, samples - _skipped(packets[0])[0] - _padding(packets))


def _skipped(packet: AudioPacket) -> tuple[int, int]:
    """Samples that a decoder leaves out at the start and at the end of a packet."""
    if not packet.has_sidedata("skip_samples"):
        return 0, 0
    start, end = np.frombuffer(bytes(packet.get_sidedata("skip_samples"))[:8], "<u4").tolist()
    return start, end


def _padding(packets: list[AudioPacket]) -> int:
    """Samples left out at the end, unless the last packet's duration is shorter for them already."""
    if len(packets) > 1 and (packets[-1].duration or 0) < (packets[-2].duration or 0):
        return 0
    return _skipped(packets[-1])[1]


def _frames(packets: Iterable[AudioPacket], context: AudioCodecContext) -> Iterator[AudioFrame]:
    for packet in packets:
        yield from context.decode(packet)
    yield from context.decode(None)


def _resampled(frames: Iterable[AudioFrame], rate: int, limits: MediaLimits) -> Iterator[AudioFrame]:
    """Frames as one channel of 16 bits at a rate; FFmpeg's filters, on the calling thread."""
    graph: av.filter.Graph | None = None
    for frame in frames:
        limits.check_samples(frame.samples * rate // frame.sample_rate)  # at 1 Hz one frame lasts for hours
        frame.pts = None  # a gap between packets is not to be filled by the filter
        if graph is None:
            graph = _graph(frame, rate)
        graph.push(frame)
        yield from _pulled(graph)
    if graph is not None:
        graph.push(None)
        yield from _pulled(graph)


def _graph(frame: AudioFrame, rate: int) -> av.filter.Graph:
    graph = av.filter.Graph()
    graph.threads = 1
    source = graph.add(
        "abuffer",
        sample_rate=str(frame.sample_rate),
        sample_fmt=frame.format.name,
        channel_layout=frame.layout.name,
        time_base=f"1/{frame.sample_rate}",
    )
    wanted = graph.add("aformat", sample_rates=str(rate), sample_fmts="s16", channel_layouts="mono")
    sink = graph.add("abuffersink")
    graph.link_nodes(source, wanted, sink).configure()
    return graph


def _pulled(graph: av.filter.Graph) -> Iterator[AudioFrame]:
    while True:
        try:
            frame = graph.pull()
        except (av.BlockingIOError, av.EOFError):
            return
        assert isinstance(frame, AudioFrame)
        yield frame
