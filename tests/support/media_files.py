"""Media files as the web contains them, made on the spot: right, awkward, cut and broken ones.

# T = frames, H, W = height, width, C = channels, N = audio samples
"""

from __future__ import annotations

import io
import math
import struct
import wave
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

Pixels = npt.NDArray[np.uint8]

RED, GREEN, BLUE, YELLOW = (220, 30, 40), (20, 200, 60), (30, 50, 210), (230, 220, 40)


def corners(height: int = 64, width: int = 96) -> Pixels:
    """A picture that shows how it is turned: red and green above, blue and yellow below. uint8 [H, W, 3]."""
    pixels = np.empty((height, width, 3), np.uint8)
    top, left = slice(0, height // 2), slice(0, width // 2)
    bottom, right = slice(height // 2, None), slice(width // 2, None)
    pixels[top, left], pixels[top, right] = RED, GREEN
    pixels[bottom, left], pixels[bottom, right] = BLUE, YELLOW
    return pixels


def photo(height: int = 427, width: int = 640, seed: int = 0) -> Pixels:
    """A picture with structure of every size and some noise, as photographs have. uint8 [H, W, 3]."""
    rng = np.random.default_rng(seed)
    total = np.full((height, width, 3), 128, np.float32)
    for octave in range(1, 8):
        coarse = rng.normal(size=(3, 2**octave + 1, 2**octave + 1)).astype(np.float32) * 60 / octave
        for channel in range(3):
            total[..., channel] += np.asarray(Image.fromarray(coarse[channel]).resize((width, height), 3))
    return np.clip(total + rng.normal(size=total.shape) * 3, 0, 255).astype(np.uint8)


def encoded(image: Image.Image | Pixels, kind: str, **options: Any) -> bytes:
    """A file of a kind that Pillow writes ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")."""
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def exif(orientation: int) -> Image.Exif:
    """EXIF data with nothing but an orientation, for `encoded(..., exif=)`."""
    data = Image.Exif()
    data[0x0112] = orientation
    return data


def cmyk_jpeg(pixels: Pixels, *, is_ycck: bool = False) -> bytes:
    """A CMYK JPEG with Adobe's marker, stored inverted as Adobe's software does; as YCCK where asked for."""
    cmyk = Image.fromarray(pixels).convert("CMYK")
    if not is_ycck:
        return encoded(cmyk, "JPEG", quality=95)
    inverted = np.ascontiguousarray(255 - np.asarray(cmyk))
    return simplejpeg.encode_jpeg(inverted, quality=95, colorspace="CMYK", colorsubsampling="444")


def without_adobe_marker(jpeg: bytes) -> bytes:
    """The same JPEG without its APP14 segment."""
    at = jpeg.index(b"\xff\xee")
    (length,) = struct.unpack_from(">H", jpeg, at + 2)
    return jpeg[:at] + jpeg[at + 2 + length :]


def animation(frames: Sequence[Pixels], kind: str) -> bytes:
    """An animated GIF or WebP, 100 ms a frame."""
    first, *rest = (Image.fromarray(frame) for frame in frames)
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    return encoded(first, kind, save_all=True, append_images=rest, duration=100, **options)


def bomb_png(side: int = 20_000) -> bytes:
    """A one-colour PNG of side x side pixels in a few kilobytes."""
    pack = zlib.compressobj(9)
    row = bytes(1 + side // 8)
    data = b"".join(pack.compress(row) for _ in range(side)) + pack.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = (_png_chunk(b"IHDR", header), _png_chunk(b"IDAT", data), _png_chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def grey_frames(count: int = 90, height: int = 48, width: int = 64) -> list[Pixels]:
    """Frames of one grey each, 2 * its number: `frame_numbers` reads them back."""
    return [np.full((height, width, 3), 2 * i, np.uint8) for i in range(count)]


def frame_numbers(frames_THWC: Pixels) -> list[int]:
    """Numbers of frames made by `grey_frames`."""
    return [round(float(frame.mean()) / 2) for frame in frames_THWC]


def video(
    frames: Sequence[Pixels],
    *,
    container: str = "mp4",
    codec: str = "libx264",
    times_ms: Sequence[int] | None = None,
    rate: int = 30,
    rotation: int = 0,
    gop: int = 30,
    b_frames: int = 0,
    sound: bool = False,
    setup: Callable[[Any], None] | None = None,
) -> bytes:
    """A video file of frames, at a fixed rate or at given times.

    Args:
        frames: uint8 [H, W, 3] each, of even sides.
        container: FFmpeg's name of it.
        codec: FFmpeg's name of the encoder.
        times_ms: When each frame is shown; at `rate` where not given.
        rate: Frames a second.
        rotation: Degrees counterclockwise that the display matrix turns the picture by.
        gop: Frames from one key frame to the next.
        b_frames: B frames between others.
        sound: Whether half a second of sound goes along.
        setup: Called with the stream before the first frame.
    """
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = {"gif": "rgb8", "mjpeg": "yuvj420p"}.get(codec, "yuv420p")
        if codec == "libx264":
            stream.options = {"crf": "4", "preset": "veryfast", "bf": str(b_frames), "g": str(gop)}
        elif codec == "mpeg4":
            stream.options = {"qmin": "1", "qmax": "2"}
        base = Fraction(1, 1000) if times_ms is not None else Fraction(1, rate)
        stream.time_base = stream.codec_context.time_base = base
        if rotation:
            stream.set_display_rotation(rotation)
        if setup is not None:
            setup(stream)
        tone = output.add_stream("aac", rate=16_000, layout="mono") if sound else None
        for i, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24")
            frame.pts, frame.time_base = (i if times_ms is None else times_ms[i]), base
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
        if tone is not None:
            output.mux(tone.encode(_audio_frame(sine(8_000, 16_000), 16_000)))
            output.mux(tone.encode())
    return buffer.getvalue()


def moov_first(mp4: bytes) -> bytes:
    """The same movie with its header before its data, as files for the web have it."""
    parts = {name: mp4[start:stop] for name, start, stop in _top_boxes(mp4)}
    moov = bytearray(parts[b"moov"])
    at = moov.find(b"stco")
    while at >= 0:
        (count,) = struct.unpack_from(">I", moov, at + 8)
        for entry in range(at + 12, at + 12 + 4 * count, 4):
            (offset,) = struct.unpack_from(">I", moov, entry)
            struct.pack_into(">I", moov, entry, offset + len(moov))
        at = moov.find(b"stco", at + 4)
    return b"".join(bytes(moov) if n == b"moov" else parts[n] for n in _web_order(parts))


def _web_order(parts: dict[bytes, bytes]) -> list[bytes]:
    names = [name for name in parts if name != b"moov"]
    return [names[0], b"moov", *names[1:]]


def without_moov(mp4: bytes) -> bytes:
    """The same movie without its header."""
    return b"".join(mp4[start:stop] for name, start, stop in _top_boxes(mp4) if name != b"moov")


def _top_boxes(mp4: bytes) -> list[tuple[bytes, int, int]]:
    boxes, at = [], 0
    while at < len(mp4):
        size, name = struct.unpack_from(">I4s", mp4, at)
        boxes.append((name, at, at + size))
        at += size
    return boxes


def cut_after_frame(data: bytes, count: int) -> bytes:
    """The file up to the middle of the packet behind the first `count`."""
    with av.open(io.BytesIO(data)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    following = packets[count]
    assert following.pos is not None
    return data[: following.pos + following.size // 2]


def sine(count: int, rate: int, *, hertz: float = 440.0, level: int = 12_000) -> npt.NDArray[np.int16]:
    """A tone, int16 [N]."""
    return np.round(np.sin(np.arange(count) * (2 * math.pi * hertz / rate)) * level).astype(np.int16)


def wav(samples: npt.NDArray[np.int16], rate: int) -> bytes:
    """A WAV file of int16 [N] or, of several channels, [N, C]."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as output:
        output.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        output.setsampwidth(2)
        output.setframerate(rate)
        output.writeframes(samples.astype("<i2").tobytes())
    return buffer.getvalue()


def audio(samples: npt.NDArray[np.int16], rate: int, *, container: str, codec: str) -> bytes:
    """A file of one channel by any of FFmpeg's encoders."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate, layout="mono")
        output.mux(stream.encode(_audio_frame(samples, rate)))
        output.mux(stream.encode())
    return buffer.getvalue()


def _audio_frame(samples: npt.NDArray[np.int16], rate: int) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(samples[np.newaxis], "s16", "mono")
    frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
    return frame
