"""Video: frames by presentation time, turned as the container says, and a reason where a file is cut or has none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.sources.blocks import ContentError
from loadmaster_flight.transforms.limits import MediaLimits
from loadmaster_flight.transforms.video import VideoInfo, chosen_times, decode_video, probe_video
from support import media_files as files

LIMITS = MediaLimits(max_bytes=1 << 26, max_pixels=100_000_000)


def reason(data: bytes, limits: MediaLimits = LIMITS) -> str:
    """Why a file is refused, at measuring and at decoding alike."""
    with pytest.raises(ContentError) as probed:
        probe_video(data, limits)
    with pytest.raises(ContentError) as decoded:
        decode_video(data, np.zeros(1), (28, 28), limits)
    assert str(probed.value) == str(decoded.value)
    return str(probed.value)


@pytest.fixture(scope="module")
def plain() -> bytes:
    """90 frames at 30 a second, a key frame every 30, header last."""
    return files.video(files.grey_frames())


@pytest.mark.parametrize(
    ("container", "codec", "b_frames"),
    [
        ("mp4", "libx264", 0),
        ("mp4", "libx264", 3),
        ("mov", "libx264", 2),
        ("matroska", "libx264", 2),
        ("webm", "libvpx-vp9", 0),
        ("avi", "mpeg4", 0),
        ("avi", "libx264", 2),
        ("mp4", "mjpeg", 0),
    ],
)
def test_decode_video_at_every_frames_time_serves_every_frame(container: str, codec: str, b_frames: int) -> None:
    data = files.video(files.grey_frames(60), container=container, codec=codec, b_frames=b_frames, gop=20)
    info = probe_video(data, LIMITS)
    assert (info.height, info.width) == (48, 64)
    assert len(info.times_F) == 60
    assert info.duration_s == pytest.approx(2.0, abs=0.02)
    assert files.frame_numbers(decode_video(data, info.times_F, None, LIMITS)) == pytest.approx(list(range(60)), abs=1)


@pytest.mark.parametrize("b_frames", [0, 3])
def test_decode_video_of_a_few_times_jumps_to_the_frames_that_decoding_all_gives(b_frames: int) -> None:
    data = files.video(files.grey_frames(), b_frames=b_frames, gop=10)
    info = probe_video(data, LIMITS)
    whole = decode_video(data, info.times_F, None, LIMITS)
    for step in (7, 23, 40):
        assert (decode_video(data, info.times_F[step::step], None, LIMITS) == whole[step::step]).all()


def test_decode_video_of_variable_rate_takes_frames_by_their_time() -> None:
    times_ms = [0, 40, 80, 1000, 1040, 3000, 3500, 3540, 5000, 5040]
    data = files.video(files.grey_frames(10), times_ms=times_ms, b_frames=2)
    info = probe_video(data, LIMITS)
    assert info.times_F == pytest.approx(np.array(times_ms) / 1000, abs=1e-3)
    asked = np.array([0.0, 0.5, 0.9999, 1.0, 2.9, 3.2, 3.6, 4.99, 5.01])
    shown = files.frame_numbers(decode_video(data, asked, None, LIMITS))
    assert shown == [np.flatnonzero(np.array(times_ms) <= 1000 * t)[-1] for t in asked]


def test_decode_video_of_a_time_before_the_first_frame_serves_the_first() -> None:
    data = files.video(files.grey_frames(10), times_ms=[1000 + 40 * i for i in range(10)], container="matroska")
    assert probe_video(data, LIMITS).times_F[0] == pytest.approx(1.0)
    assert files.frame_numbers(decode_video(data, np.array([0.2, 1.05]), None, LIMITS)) == [0, 1]


def test_decode_video_of_a_time_asked_twice_serves_the_frame_twice(plain: bytes) -> None:
    assert files.frame_numbers(decode_video(plain, np.array([1.0, 1.001, 1.01]), None, LIMITS)) == [30, 30, 30]


def test_decode_video_of_descending_times_is_refused(plain: bytes) -> None:
    with pytest.raises(ValueError, match="times_T must be ascending"):
        decode_video(plain, np.array([1.0, 0.5]), None, LIMITS)


@pytest.mark.parametrize(("rotation", "quarter_turns"), [(0, 0), (90, 1), (180, 2), (-90, 3)])
def test_decode_video_of_a_rotated_phone_video_stands_upright(rotation: int, quarter_turns: int) -> None:
    data = files.video([files.corners()] * 4, rotation=rotation)
    upright = np.rot90(files.corners(), quarter_turns)
    info = probe_video(data, LIMITS)
    assert (info.height, info.width) == upright.shape[:2]
    served = decode_video(data, info.times_F[:1], None, LIMITS)[0]
    assert served.shape == upright.shape
    assert np.abs(served.astype(int) - upright).mean() < 6
    height, width = upright.shape[0] // 2, upright.shape[1] // 2
    small = decode_video(data, info.times_F[:1], (height, width), LIMITS)[0]
    assert np.abs(small[::4, ::4].astype(int) - upright[::8, ::8]).mean() < 12


@pytest.mark.parametrize("space", [1, 5], ids=["bt709", "bt470bg"])
def test_decode_video_follows_the_colour_space_that_the_stream_declares(space: int) -> None:
    def declare(stream: Any) -> None:
        stream.codec_context.colorspace = space

    matrix = {1: (0.2126, 0.0722), 5: (0.299, 0.114)}[space]
    data = files.video([ycc_of(files.RED, *matrix)] * 3, setup=declare)
    served = decode_video(data, np.zeros(1), None, LIMITS)[0]
    assert np.abs(served.astype(int) - files.RED).max() <= 4


def ycc_of(rgb: tuple[int, int, int], red: float, blue: float) -> np.ndarray:
    """A picture whose BT.601 encoding (what the encoder makes of RGB) are the YCbCr values of another matrix."""
    r, g, b = rgb
    y = red * r + (1 - red - blue) * g + blue * b
    cb, cr = (b - y) / (2 * (1 - blue)), (r - y) / (2 * (1 - red))
    back = (y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb)
    return np.full((48, 64, 3), np.round(back), np.uint8)


def test_decode_video_of_an_animated_gif_serves_its_frames() -> None:
    frames = [files.corners(), 255 - files.corners(), np.ascontiguousarray(files.corners()[::-1])]
    data = files.animation(frames, "GIF")
    info = probe_video(data, LIMITS)
    assert info.times_F == pytest.approx([0, 0.1, 0.2])
    assert np.abs(decode_video(data, info.times_F, None, LIMITS).astype(int) - np.stack(frames)).mean() < 2


def test_decode_video_on_several_threads_gives_the_same_bytes(plain: bytes) -> None:
    times_T = chosen_times(probe_video(plain, LIMITS), 4, 2, 64, 2)
    with ThreadPoolExecutor(4) as pool:
        served = list(pool.map(lambda _: decode_video(plain, times_T, (28, 56), LIMITS).tobytes(), range(8)))
    assert len(set(served)) == 1


@pytest.mark.parametrize("is_web", [False, True], ids=["moov last", "moov first"])
def test_probe_video_of_an_mp4_cut_after_frame_60_names_the_place(plain: bytes, is_web: bool) -> None:
    whole = files.moov_first(plain) if is_web else plain
    assert files.frame_numbers(decode_video(whole, np.array([2.5]), None, LIMITS)) == [75]
    wanted = "cut after frame 60 of 90" if is_web else "MP4 with no moov"
    assert reason(files.cut_after_frame(whole, 60)) == wanted


@pytest.mark.parametrize("container", ["matroska", "avi"])
def test_probe_video_of_another_cut_container_is_refused(container: str) -> None:
    data = files.video(files.grey_frames(), container=container, codec="mpeg4")
    assert reason(files.cut_after_frame(data, 60)).startswith(("truncated", "cut after frame 60"))


def test_probe_video_of_an_mp4_without_moov_is_refused(plain: bytes) -> None:
    assert reason(files.without_moov(plain)) == "MP4 with no moov"


def test_probe_video_of_sound_alone_is_refused() -> None:
    data = files.audio(files.sine(16_000, 16_000), 16_000, container="mp4", codec="aac")
    assert reason(data) == "no video stream"


def test_probe_video_of_a_track_without_frames_is_refused() -> None:
    assert reason(no_frames()) == "video without frames"


def no_frames() -> bytes:
    """A movie whose video track has a table of no samples."""
    data = bytearray(files.moov_first(files.video(files.grey_frames(3), sound=True)))
    at = data.index(b"vide")
    for table, entries_at in ((b"stsz", 12), (b"stts", 8), (b"stsc", 8), (b"stco", 8), (b"ctts", 8), (b"stss", 8)):
        place = data.find(table, at)
        stop = data.find(b"trak", at)
        if 0 <= place < (stop if stop > 0 else len(data)):
            data[place + entries_at : place + entries_at + 4] = bytes(4)
    return bytes(data)


def test_probe_video_of_a_table_larger_than_its_file_is_refused(plain: bytes) -> None:
    data = bytearray(plain)
    at = data.index(b"stsz")
    data[at + 8 : at + 16] = (1).to_bytes(4, "big") + (150_000_000).to_bytes(4, "big")
    assert reason(bytes(data)) == "MP4 announces more samples than it has bytes"


def test_probe_video_over_the_pixel_limit_is_refused(plain: bytes) -> None:
    assert reason(plain, MediaLimits(max_bytes=1 << 20, max_pixels=3000)) == "48x64 pixels, over the limit of 3000"


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", "empty file"),
        (np.random.default_rng(3).bytes(4096), "not a video that is read (MP4, Matroska, AVI, GIF)"),
        (
            b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
            "playlist file, not a video that is read (MP4, Matroska, AVI, GIF)",
        ),
        (
            b"ffconcat version 1.0\nfile /etc/passwd\n",
            "playlist file, not a video that is read (MP4, Matroska, AVI, GIF)",
        ),
    ],
    ids=["empty", "random", "m3u8", "ffconcat"],
)
def test_probe_video_of_no_video_is_refused_by_name(data: bytes, wanted: str) -> None:
    assert reason(data) == wanted


def test_probe_video_of_an_image_is_refused_by_name() -> None:
    assert reason(files.encoded(files.corners(), "JPEG")).startswith("JPEG file, not a video")


def test_decode_video_of_a_damaged_frame_is_refused_and_frames_before_it_served(plain: bytes) -> None:
    data = bytearray(files.video([files.photo(96, 128, seed) for seed in range(20)], gop=10))
    info = probe_video(bytes(data), LIMITS)
    at = len(files.cut_after_frame(bytes(data), 14))
    data[at : at + 200] = bytes(200)
    assert decode_video(bytes(data), info.times_F[:10], None, LIMITS).shape == (10, 96, 128, 3)
    with pytest.raises(ContentError, match=r"^frame 1\d (is damaged|does not decode)$"):
        decode_video(bytes(data), info.times_F, None, LIMITS)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("container", ["mp4", "matroska", "avi"])
def test_decode_video_of_damaged_bytes_serves_or_refuses_the_same_every_time(container: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(files.video(files.grey_frames(12), container=container, codec="mpeg4"))
    for place in rng.integers(8, len(data), 5 + 10 * seed):
        data[place] = rng.integers(256)

    def outcome() -> bytes | str:
        limits = MediaLimits(max_bytes=1 << 20, max_pixels=1 << 20)
        try:
            times_T = chosen_times(probe_video(bytes(data), limits), 4, 2, 8, 2)
            return decode_video(bytes(data), times_T, (28, 28), limits).tobytes()
        except ContentError as error:
            return str(error)

    assert outcome() == outcome()


def info_of(num_frames: int, rate: float) -> VideoInfo:
    times_F = np.arange(num_frames) / rate + 1.5
    return VideoInfo(height=48, width=64, times_F=times_F, duration_s=num_frames / rate)


@pytest.mark.parametrize(
    ("num_frames", "rate", "fps", "least", "most", "multiple", "count"),
    [
        (300, 30.0, 2.0, 4, 64, 2, 20),
        (3000, 30.0, 2.0, 4, 64, 2, 64),
        (30, 30.0, 2.0, 4, 64, 2, 4),
        (3, 30.0, 2.0, 4, 64, 2, 2),
        (1, 30.0, 2.0, 4, 64, 2, 2),
        (300, 30.0, 2.0, 4, 15, 2, 14),
        (90, 30.0, 2.0, 1, 64, 1, 6),
    ],
)
def test_chosen_times_keep_to_fps_limits_and_multiple(
    num_frames: int, rate: float, fps: float, least: int, most: int, multiple: int, count: int
) -> None:
    info = info_of(num_frames, rate)
    times_T = chosen_times(info, fps, least, most, multiple)
    assert len(times_T) == count
    assert times_T[0] == info.times_F[0]
    assert np.diff(times_T) == pytest.approx(info.duration_s / count)
    assert times_T[-1] < info.times_F[0] + info.duration_s
