"""Pixels and audio of units against decoding the item whole; the same in a process of its own.

# P = patches, D = numbers of a patch
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadmaster_flight.sources.blocks import ContentError
from loadmaster_flight.spec.media import MediaSpec
from loadmaster_flight.transforms import isolated
from loadmaster_flight.transforms.audio import decode_audio
from loadmaster_flight.transforms.codec import Codec, LeftOutError, MediaCodec
from loadmaster_flight.transforms.image import decode_image
from loadmaster_flight.transforms.isolated import DecoderFailedError, IsolatedCodec
from loadmaster_flight.transforms.limits import MediaLimits
from loadmaster_flight.transforms.media_child import packed, unpacked
from loadmaster_flight.transforms.patches import normalised, to_patches
from loadmaster_flight.transforms.video import chosen_times, decode_video, probe_video
from loadmaster_flight.wire.errors import UnavailableError
from loadmaster_flight.wire.media import Grid, patches_of, unit_grids
from loadmaster_flight.wire.schemas import MediaKind
from support.media_files import encoded, grey_frames, photo, sine, video, wav

LIMITS = MediaLimits(max_bytes=64 << 20, max_pixels=100_000_000)
UInt8Array = npt.NDArray[np.uint8]


def spec_of(**vision: Any) -> MediaSpec:
    return MediaSpec.model_validate({"vision": vision, "audio": {"hop": 160, "max_s": 0.5}})


def filled(
    codec: Codec, spec: MediaSpec, kind: MediaKind, data: bytes, grid: Grid, units: list[int] | None = None
) -> UInt8Array:
    """Pixels of some units (all by default), uint8 bytes."""
    assert spec.vision is not None
    grids = unit_grids(kind, grid, merge=spec.vision.grid_merge, max_patches=spec.vision.unit_cap)
    wanted = np.arange(len(grids)) if units is None else np.array(units, np.int64)
    num_patches = int(patches_of(grids)[wanted].sum())
    out = np.full(num_patches * spec.vision.patch_dim * spec.vision.item_bytes, 170, np.uint8)
    codec.fill_pixels(kind, data, grid, wanted, out)
    return out


def test_fill_pixels_when_item_is_an_image_equals_decoding_and_cutting_it() -> None:
    spec, data = spec_of(), encoded(photo(200, 310), "JPEG", quality=90)
    codec = MediaCodec(spec)
    grid = codec.probe(MediaKind.IMAGE, data)
    assert grid == (1, 14, 22)
    pixels_HWC = decode_image(data, (14 * 14, 22 * 14), LIMITS)
    expected_PD = to_patches(pixels_HWC[np.newaxis], patch=14, merge=2, temporal=2)
    assert np.array_equal(filled(codec, spec, MediaKind.IMAGE, data, grid), expected_PD.reshape(-1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_fill_pixels_when_type_is_float_normalises(dtype: str) -> None:
    spec, data = spec_of(dtype=dtype), encoded(photo(100, 120), "PNG")
    codec = MediaCodec(spec)
    grid = codec.probe(MediaKind.IMAGE, data)
    bytes_PD = filled(MediaCodec(spec_of()), spec_of(), MediaKind.IMAGE, data, grid).reshape(-1, 3 * 2 * 14 * 14)
    assert spec.vision is not None
    expected = normalised(bytes_PD, mean=spec.vision.mean, std=spec.vision.std, dtype=dtype)
    assert filled(codec, spec, MediaKind.IMAGE, data, grid).tobytes() == expected.tobytes()


def test_fill_pixels_when_item_is_a_video_takes_the_chosen_frames() -> None:
    spec, data = spec_of(fps=3.0), video(grey_frames(60, 112, 140), rate=15)
    codec = MediaCodec(spec)
    grid = codec.probe(MediaKind.VIDEO, data)
    info = probe_video(data, LIMITS)
    times_T = chosen_times(info, 3.0, 2, 64, 2)
    assert grid == (len(times_T) // 2, 8, 10)
    frames_THWC = decode_video(data, times_T, (112, 140), LIMITS)
    expected_PD = to_patches(frames_THWC, patch=14, merge=2, temporal=2)
    assert np.array_equal(filled(codec, spec, MediaKind.VIDEO, data, grid), expected_PD.reshape(-1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=30)
@given(data=st.data())
def test_fill_pixels_when_some_units_are_wanted_writes_their_part_of_the_whole(data: Any) -> None:
    spec = spec_of(fps=4.0, max_patches=data.draw(st.integers(8, 120)), over_max="shard", dtype="float16")
    kind = data.draw(st.sampled_from([MediaKind.IMAGE, MediaKind.VIDEO]))
    item = _CLIP if kind is MediaKind.VIDEO else _PICTURE
    codec = MediaCodec(spec)
    grid = codec.probe(kind, item)
    assert spec.vision is not None
    grids = unit_grids(kind, grid, merge=2, max_patches=spec.vision.max_patches)
    units = sorted(data.draw(st.sets(st.integers(0, len(grids) - 1))))
    edges = np.cumsum([0, *patches_of(grids)]) * spec.vision.patch_dim * 2
    whole = filled(codec, spec, kind, item, grid)
    expected = [whole[edges[unit] : edges[unit + 1]] for unit in units]
    assert filled(codec, spec, kind, item, grid, units).tobytes() == b"".join(part.tobytes() for part in expected)


_CLIP = video(grey_frames(24, 112, 84), rate=8)
_PICTURE = encoded(photo(150, 170), "PNG")


def test_fill_pixels_when_size_is_fixed_writes_channel_row_column() -> None:
    spec = spec_of(layout="frames", size=[40, 60], fps=2.0)
    codec, data = MediaCodec(spec), video(grey_frames(20, 112, 84), rate=5)
    grid = codec.probe(MediaKind.VIDEO, data)
    times_T = chosen_times(probe_video(data, LIMITS), 2.0, 2, 64, 1)
    assert grid == (len(times_T), 1, 1)
    frames_THWC = decode_video(data, times_T, (40, 60), LIMITS)
    assert np.array_equal(filled(codec, spec, MediaKind.VIDEO, data, grid), np.moveaxis(frames_THWC, -1, 1).reshape(-1))


@pytest.mark.parametrize(("seconds", "frames"), [(0.1, 10), (0.333, 34), (0.9, 50)])
def test_fill_audio_when_clip_has_any_length_fills_or_cuts_it(seconds: float, frames: int) -> None:
    spec = spec_of()
    codec, data = MediaCodec(spec), wav(sine(round(seconds * 8000), 8000), 8000)
    grid = codec.probe(MediaKind.AUDIO, data)
    assert grid == (frames, 1, 1)
    out = np.full(frames * 160 * 2, 170, np.uint8)
    codec.fill_audio(data, grid, out)
    samples = decode_audio(data, 16_000, LIMITS)[: round(min(seconds, 0.5) * 16_000)]
    assert np.array_equal(out.view("<i2")[: len(samples)], samples)
    assert not out.view("<i2")[len(samples) :].any()


def test_isolated_codec_when_item_is_good_does_the_same() -> None:
    spec = spec_of()
    here, there = MediaCodec(spec), IsolatedCodec(spec)
    grid = here.probe(MediaKind.IMAGE, _PICTURE)
    assert there.probe(MediaKind.IMAGE, _PICTURE) == grid
    assert np.array_equal(
        filled(there, spec, MediaKind.IMAGE, _PICTURE, grid), filled(here, spec, MediaKind.IMAGE, _PICTURE, grid)
    )
    sound = wav(sine(1600, 16_000), 16_000)
    outs = [np.full(10 * 320, 7, np.uint8) for _ in range(2)]
    for codec, out in zip((here, there), outs, strict=True):
        codec.fill_audio(sound, (10, 1, 1), out)
    assert np.array_equal(*outs)


def test_isolated_codec_when_item_is_bad_says_the_same() -> None:
    spec = spec_of(max_patches=4, over_max="skip")
    here, there = MediaCodec(spec), IsolatedCodec(spec)
    reasons = []
    for codec in (here, there):
        with pytest.raises(ContentError) as content:
            codec.probe(MediaKind.IMAGE, b"random bytes")
        with pytest.raises(LeftOutError) as left_out:
            codec.probe(MediaKind.IMAGE, _PICTURE)
        reasons.append((str(content.value), str(left_out.value)))
    assert reasons[0] == reasons[1]


CHILD = """
import os, signal, time
from dataclasses import replace
from loadmaster_flight.transforms import media_child
from loadmaster_flight.transforms.decoders import installed_decoders, use_decoders
def fail(*_): {}
use_decoders(replace(installed_decoders(), image_size=fail))
media_child.main()
"""


@pytest.mark.parametrize(
    ("does", "error", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", ContentError, r"the decoder crashed on it \(SIGSEGV\)"),
        ("os.abort()", ContentError, r"the decoder crashed on it \(SIGABRT\)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", UnavailableError, "ended with code -9"),
        ("os._exit(3)", UnavailableError, "ended with code 3"),
        ("raise MemoryError", MemoryError, "had no memory"),
        ("raise ZeroDivisionError('a')", DecoderFailedError, "ZeroDivisionError: a"),
        ("print('noise'); os.write(1, b'noise'); return 56, 56", None, ""),
    ],
)
def test_isolated_codec_when_decoder_ends_the_process_tells_content_from_the_rest(
    monkeypatch: pytest.MonkeyPatch, does: str, error: type[Exception] | None, message: str
) -> None:
    monkeypatch.setattr(isolated, "CHILD", (sys.executable, "-c", CHILD.format(does)))
    monkeypatch.setenv("PYTHONPATH", ":".join(str(Path(path)) for path in sys.path))
    codec = IsolatedCodec(spec_of())
    if error is None:
        assert codec.probe(MediaKind.IMAGE, b"x") == (1, 4, 4)
        return
    with pytest.raises(error, match=message):
        codec.probe(MediaKind.IMAGE, b"x")


def test_isolated_codec_when_decoder_hangs_says_nothing_about_the_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "CHILD", (sys.executable, "-c", "import signal; signal.pause()"))
    monkeypatch.setattr(isolated, "TIMEOUT_S", 0.2)
    with pytest.raises(UnavailableError, match=r"did not end within 0\.2 s"):
        IsolatedCodec(spec_of()).probe(MediaKind.IMAGE, b"x")


@given(head=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)), body=st.binary(max_size=50))
def test_packed_when_unpacked_is_what_it_was(head: dict[str, Any], body: bytes) -> None:
    message = packed(head, body)
    got, rest = unpacked(message)
    assert (got, bytes(rest)) == (head, body)
    with pytest.raises(ValueError, match="a message must have"):
        unpacked(message[: len(message) - len(body) - 1])
