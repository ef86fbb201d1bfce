"""Audio: exact lengths before decoding, one channel at the wanted rate, or a reason."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from loadmaster_flight.sources.blocks import ContentError
from loadmaster_flight.transforms.audio import AudioInfo, decode_audio, probe_audio
from loadmaster_flight.transforms.limits import MediaLimits
from support import media_files as files

LIMITS = MediaLimits(max_bytes=1 << 26, max_pixels=100_000_000)


def reason(data: bytes, limits: MediaLimits = LIMITS) -> str:
    """Why a file is refused, at measuring and at decoding alike."""
    with pytest.raises(ContentError) as probed:
        probe_audio(data, limits)
    with pytest.raises(ContentError) as decoded:
        decode_audio(data, 16_000, limits)
    assert str(probed.value) == str(decoded.value)
    return str(probed.value)


def tone_error(samples: np.ndarray, rate: int) -> float:
    """Root mean square of what a tone of 440 Hz leaves in a clip, over the tone's; edges left out."""
    wanted = files.sine(len(samples), rate).astype(float)
    inside = slice(rate // 20, -rate // 20)
    rest = samples[inside].astype(float) - wanted[inside]
    return float(np.sqrt((rest**2).mean() / (wanted[inside] ** 2).mean()))


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_decode_audio_of_wav_is_resampled_to_the_promised_length(rate: int) -> None:
    data = files.wav(files.sine(rate + 17, rate), rate)
    info = probe_audio(data, LIMITS)
    assert (info.num_samples, info.rate, info.channels) == (rate + 17, rate, 1)
    served = decode_audio(data, 16_000, LIMITS)
    assert served.dtype == np.int16
    assert len(served) == info.num_samples_at(16_000) == round(info.duration_s * 16_000)
    assert tone_error(served, 16_000) < 0.01


def test_decode_audio_of_wav_at_its_own_rate_is_exact() -> None:
    samples = files.sine(12_345, 16_000)
    assert (decode_audio(files.wav(samples, 16_000), 16_000, LIMITS) == samples).all()


def test_decode_audio_of_a_long_clip_stops_at_the_samples_that_are_wanted() -> None:
    data = files.wav(files.sine(80_000, 8_000), 8_000)
    whole, longest = decode_audio(data, 16_000, LIMITS), 10_001
    assert (decode_audio(data, 16_000, LIMITS, longest) == whole[:longest]).all()
    assert len(decode_audio(data, 16_000, LIMITS, 10 * longest + 200_000)) == 160_000


def test_decode_audio_of_stereo_is_the_mean_of_its_channels() -> None:
    left, right = files.sine(16_000, 16_000, level=8000), files.sine(16_000, 16_000, hertz=1000, level=6000)
    served = decode_audio(files.wav(np.stack([left, right], axis=1), 16_000), 16_000, LIMITS)
    assert np.abs(served - (left.astype(float) + right) / 2).max() <= 1


@pytest.mark.parametrize(
    ("container", "codec", "rate", "tolerance", "error"),
    [
        ("flac", "flac", 44_100, 0, 0.01),
        ("mp3", "libmp3lame", 44_100, 0, 0.08),
        ("ogg", "libopus", 48_000, 0, 0.03),
        ("mp4", "aac", 44_100, 0, 0.03),
        ("ipod", "aac", 44_100, 0, 0.03),
        ("mov", "pcm_s16le", 44_100, 0, 0.01),
        ("matroska", "aac", 44_100, 1_024, 0.03),
        ("webm", "libopus", 48_000, 100, 0.03),
    ],
)
def test_decode_audio_of_a_codec_has_the_tone_where_it_was(
    container: str, codec: str, rate: int, tolerance: int, error: float
) -> None:
    data = files.audio(files.sine(50_001, rate), rate, container=container, codec=codec)
    info = probe_audio(data, LIMITS)
    assert abs(info.num_samples - 50_001) <= tolerance
    served = decode_audio(data, 16_000, LIMITS)
    assert len(served) == info.num_samples_at(16_000)
    assert tone_error(served, 16_000) < error


def test_decode_audio_of_aac_without_a_container_has_the_promised_length() -> None:
    data = files.audio(files.sine(50_001, 44_100), 44_100, container="adts", codec="aac")
    info = probe_audio(data, LIMITS)
    assert info.num_samples == 50 * 1024
    assert len(decode_audio(data, 16_000, LIMITS)) == info.num_samples_at(16_000)


def test_decode_audio_of_a_movie_is_its_sound() -> None:
    data = files.video(files.grey_frames(15), sound=True)
    info = probe_audio(data, LIMITS)
    assert (info.num_samples, info.rate) == (8_000, 16_000)
    assert tone_error(decode_audio(data, 16_000, LIMITS), 16_000) < 0.06


@pytest.mark.parametrize(
    ("num_samples", "rate", "wanted"), [(1, 3, 5333), (3, 32_000, 2), (44_100, 44_100, 16_000), (1, 48_000, 0)]
)
def test_num_samples_at_rounds_half_up(num_samples: int, rate: int, wanted: int) -> None:
    assert AudioInfo(num_samples=num_samples, rate=rate, channels=1).num_samples_at(16_000) == wanted


@pytest.mark.parametrize("container", ["wav", "flac"])
def test_probe_audio_of_a_clip_without_samples_is_refused(container: str) -> None:
    empty = files.sine(0, 16_000)
    data = files.wav(empty, 16_000) if container == "wav" else empty_flac()
    assert reason(data) == "no audio samples"


def empty_flac() -> bytes:
    """A FLAC of a header alone."""
    data = files.audio(files.sine(4_096, 16_000), 16_000, container="flac", codec="flac")
    with_total = bytearray(data[:42])
    with_total[4] |= 0x80  # the last block of metadata
    with_total[21] &= 0xF0
    with_total[22:26] = bytes(4)
    return bytes(with_total)


@pytest.mark.parametrize(
    ("container", "codec"), [("wav", "pcm_s16le"), ("flac", "flac"), ("mp4", "aac"), ("matroska", "aac")]
)
def test_probe_audio_of_a_cut_file_is_refused(container: str, codec: str) -> None:
    data = files.audio(files.sine(50_000, 16_000), 16_000, container=container, codec=codec)
    assert reason(data[: len(data) * 2 // 3]).startswith(("truncated", "MP4 with no moov"))


def test_probe_audio_of_a_wav_written_to_a_pipe_is_served() -> None:
    samples = files.sine(16_000, 16_000)
    data = bytearray(files.wav(samples, 16_000))
    struct.pack_into("<I", data, 4, 0xFFFFFFFF)
    struct.pack_into("<I", data, 40, 0xFFFFFFFF)
    assert (decode_audio(bytes(data), 16_000, LIMITS) == samples).all()


def test_probe_audio_of_a_video_without_sound_is_refused() -> None:
    assert reason(files.video(files.grey_frames(3))) == "no audio stream"


def test_decode_audio_over_the_sample_limit_is_refused_by_what_is_decoded_of_it() -> None:
    limits = MediaLimits(max_bytes=1 << 20, max_pixels=10_000)
    data = files.wav(files.sine(10_001, 16_000), 16_000)
    with pytest.raises(ContentError, match=r"^10001 audio samples, over the limit of 10000$"):
        decode_audio(data, 16_000, limits)
    assert (decode_audio(data, 16_000, limits, 10_000) == files.sine(10_000, 16_000)).all()


def test_decode_audio_when_one_frame_of_a_low_rate_is_over_the_limit_is_refused() -> None:
    limits = MediaLimits(max_bytes=1 << 20, max_pixels=5000)
    data = files.audio(files.sine(8000, 8000), 8000, container="flac", codec="flac")  # frames of 1152 samples or more
    assert len(decode_audio(data, 16_000, limits, 1000)) == 1000
    with pytest.raises(ContentError, match=r"audio samples, over the limit of 5000$"):
        decode_audio(data, 96_000, limits, 1000)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", "empty file"),
        (np.random.default_rng(3).bytes(4096), "not audio that is read"),
        (b"#EXTM3U\nhttp://127.0.0.1/x.mp3\n", "playlist file, not audio that is read"),
        (files.encoded(files.corners(), "PNG"), "PNG file, not audio that is read"),
    ],
    ids=["empty", "random", "m3u", "png"],
)
def test_probe_audio_of_no_audio_is_refused_by_name(data: bytes, wanted: str) -> None:
    assert reason(data).startswith(wanted)


@pytest.mark.parametrize("seed", range(8))
def test_decode_audio_of_damaged_bytes_is_refused_or_has_the_promised_length(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(files.audio(files.sine(30_000, 44_100), 44_100, container="flac", codec="flac"))
    for place in rng.integers(60, len(data), 3):
        data[place] = rng.integers(256)
    promised, served = None, None
    try:
        promised = probe_audio(bytes(data), LIMITS).num_samples_at(16_000)
        served = len(decode_audio(bytes(data), 16_000, LIMITS))
    except ContentError as error:
        served, promised = str(error), "damaged audio" if promised else "truncated FLAC"
    assert served == promised
