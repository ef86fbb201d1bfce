"""Images as the web contains them: right colours, right side up, right size, or a reason."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image, ImageOps

from loadmaster_flight.sources.blocks import ContentError
from loadmaster_flight.transforms.image import decode_image, image_size
from loadmaster_flight.transforms.limits import MediaLimits
from support import media_files as files

LIMITS = MediaLimits(max_bytes=1 << 26, max_pixels=100_000_000)


def level_error(pixels: np.ndarray, wanted: np.ndarray) -> float:
    assert pixels.shape == wanted.shape
    return float(np.abs(pixels.astype(int) - wanted).mean())


def reason(data: bytes, limits: MediaLimits = LIMITS) -> str:
    """Why a file is refused at measuring already."""
    with pytest.raises(ContentError) as caught:
        image_size(data, limits)
    with pytest.raises(ContentError, match=str(caught.value).replace("(", r"\(").replace(")", r"\)")):
        decode_image(data, None, limits)
    return str(caught.value)


def decode_reason(data: bytes) -> str:
    """Why a file whose header is right is refused when it is decoded."""
    image_size(data, LIMITS)
    with pytest.raises(ContentError) as caught:
        decode_image(data, (56, 84), LIMITS)
    return str(caught.value)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_decode_image_of_any_exif_orientation_stands_upright(kind: str, orientation: int) -> None:
    data = files.encoded(
        files.corners(), kind, exif=files.exif(orientation), **({} if kind == "PNG" else {"quality": 95})
    )
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    assert image_size(data, LIMITS) == upright.shape[:2]
    assert level_error(decode_image(data, None, LIMITS), upright) < 1
    height, width = upright.shape[0] // 2, upright.shape[1] // 2
    small = np.asarray(Image.fromarray(upright).resize((width, height), Image.Resampling.BICUBIC))
    assert level_error(decode_image(data, (height, width), LIMITS), small) < 3


@pytest.mark.parametrize("is_ycck", [False, True], ids=["cmyk", "ycck"])
def test_decode_image_of_adobe_cmyk_has_the_colours_of_the_picture(is_ycck: bool) -> None:
    pixels = files.corners()
    assert level_error(decode_image(files.cmyk_jpeg(pixels, is_ycck=is_ycck), None, LIMITS), pixels) < 4


def test_decode_image_of_cmyk_without_adobe_marker_is_not_inverted() -> None:
    pixels = files.corners()
    inverted_ink = Image.fromarray(255 - np.asarray(Image.fromarray(pixels).convert("CMYK")), "CMYK")
    data = files.without_adobe_marker(files.encoded(inverted_ink, "JPEG", quality=95))
    assert level_error(decode_image(data, None, LIMITS), pixels) < 4


def test_decode_image_of_an_adobe_marked_rgb_jpeg_is_not_taken_for_ycc() -> None:
    pixels = files.corners()
    data = files.encoded(pixels, "JPEG", quality=95, keep_rgb=True)
    assert b"Adobe" in data
    assert level_error(decode_image(data, None, LIMITS), pixels) < 2


def grey_with_alpha() -> tuple[Image.Image, np.ndarray]:
    pixels = np.zeros((32, 32, 2), np.uint8)
    pixels[:, :16] = (90, 255)
    pixels[:, 16:] = (90, 0)
    wanted = np.full((32, 32, 3), 255)
    wanted[:, :16] = 90
    return Image.fromarray(pixels, "LA"), wanted


def test_decode_image_of_l_repeats_the_grey() -> None:
    grey = np.tile(np.arange(0, 256, 4, dtype=np.uint8), (32, 1))
    wanted = np.repeat(grey[..., np.newaxis], 3, axis=2)
    assert level_error(decode_image(files.encoded(grey, "PNG"), None, LIMITS), wanted) == 0
    assert level_error(decode_image(files.encoded(grey, "JPEG", quality=98), None, LIMITS), wanted) < 2


def test_decode_image_of_la_lays_it_on_white() -> None:
    image, wanted = grey_with_alpha()
    assert level_error(decode_image(files.encoded(image, "PNG"), None, LIMITS), wanted) == 0


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_decode_image_of_rgba_lays_it_on_white(kind: str) -> None:
    pixels = np.zeros((16, 32, 4), np.uint8)
    pixels[:, :8], pixels[:, 8:16], pixels[:, 16:] = (200, 0, 0, 255), (200, 0, 0, 128), (200, 0, 0, 0)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    served = decode_image(files.encoded(pixels, kind, **options), None, LIMITS)
    assert served[0, 0].tolist() == [200, 0, 0]
    assert np.abs(served[0, 10].astype(int) - [227, 127, 127]).max() <= 1
    assert served[0, 31].tolist() == [255, 255, 255]


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_decode_image_of_p_with_transparency_lays_it_on_white(kind: str) -> None:
    image = Image.new("P", (32, 32), 1)
    image.putpalette([0, 0, 0, *files.RED, *files.BLUE])
    image.paste(2, (16, 0, 32, 32))
    served = decode_image(files.encoded(image, kind, transparency=2), None, LIMITS)
    assert served[0, 0].tolist() == list(files.RED)
    assert served[0, 31].tolist() == [255, 255, 255]


def test_decode_image_of_a_16_bit_png_is_scaled_and_not_clipped() -> None:
    wide = np.tile(np.linspace(0, 65535, 64).astype(np.uint16), (32, 1))
    served = decode_image(files.encoded(Image.fromarray(wide), "PNG"), None, LIMITS)
    assert level_error(served[..., 0], np.round(wide / 257)) == 0
    assert (served[..., 0] == served[..., 2]).all()


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_decode_image_of_an_animation_is_its_first_frame(kind: str) -> None:
    first = files.corners()
    data = files.animation([first, 255 - first, files.corners()[::-1]], kind)
    assert image_size(data, LIMITS) == (64, 96)
    assert level_error(decode_image(data, None, LIMITS), first) < 1


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("size", [(224, 224), (420, 644), (28, 84), (56, 28)])
def test_decode_image_with_a_size_is_close_to_pillows_bicubic(kind: str, size: tuple[int, int]) -> None:
    data = files.encoded(files.photo(), kind)
    whole = Image.open(io.BytesIO(data)).convert("RGB")
    wanted = np.asarray(whole.resize(size[::-1], Image.Resampling.BICUBIC))
    assert level_error(decode_image(data, size, LIMITS), wanted) < 0.9


def test_decode_image_far_smaller_keeps_one_colour_exact() -> None:
    data = files.encoded(np.full((3000, 3000, 3), files.GREEN, np.uint8), "PNG")
    assert (decode_image(data, (28, 28), LIMITS) == files.GREEN).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 150), (150, 1), (3, 2)])
def test_decode_image_of_very_few_pixels_can_be_made_larger(shape: tuple[int, int]) -> None:
    data = files.encoded(np.full((*shape, 3), files.BLUE, np.uint8), "PNG")
    assert np.abs(decode_image(data, (56, 84), LIMITS).astype(int) - files.BLUE).max() <= 1


def test_decode_image_on_several_threads_gives_the_same_bytes() -> None:
    data = files.encoded(files.photo(800, 1000), "JPEG")
    with ThreadPoolExecutor(4) as pool:
        served = list(pool.map(lambda _: decode_image(data, (308, 392), LIMITS).tobytes(), range(12)))
    assert len(set(served)) == 1


def test_image_size_of_a_bomb_is_refused_by_its_header_without_memory() -> None:
    data = files.bomb_png()
    assert len(data) < 100_000
    assert reason(data) == "20000x20000 pixels, over the limit of 100000000"
    code = """
import resource, sys
from loadmaster_flight.sources.blocks import ContentError
from loadmaster_flight.transforms.image import decode_image, image_size
from loadmaster_flight.transforms.limits import MediaLimits
data, limits = sys.stdin.buffer.read(), MediaLimits(max_bytes=1 << 26, max_pixels=100_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for read in (lambda: image_size(data, limits), lambda: decode_image(data, (28, 28), limits)):
    try:
        read()
    except ContentError:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown_kb = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True).stdout.split()
    assert len(grown_kb) == 2
    assert all(int(kb) < 4096 for kb in grown_kb)


def test_image_size_of_a_webp_that_announces_a_large_canvas_is_refused() -> None:
    data = bytearray(files.animation([files.corners(), files.corners()[::-1]], "WEBP"))
    assert data[12:16] == b"VP8X"
    data[24:30] = (16_382).to_bytes(3, "little") * 2
    assert reason(bytes(data)) == "16383x16383 pixels, over the limit of 100000000"


def test_image_size_of_a_gif_whose_frame_leaves_its_screen_is_refused() -> None:
    data = bytearray(files.encoded(files.corners(), "GIF"))
    struct.pack_into("<HH", data, 6, 8, 8)
    assert reason(bytes(data)) == "GIF frame is larger than its screen"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF"])
def test_decode_image_of_a_cut_file_is_refused(kind: str, share: float) -> None:
    data = files.encoded(files.photo(), kind)
    assert decode_reason(data[: int(len(data) * share)]) == f"truncated {kind}"


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
def test_decode_image_of_a_cut_jpeg_with_an_end_marker_is_refused(options: dict[str, bool]) -> None:
    data = files.encoded(files.photo(), "JPEG", **options)
    assert decode_reason(data[: len(data) // 2] + b"\xff\xd9") == "truncated JPEG"


def test_decode_image_of_a_cut_cmyk_jpeg_is_refused() -> None:
    data = files.cmyk_jpeg(files.photo())
    assert decode_reason(data[: len(data) // 2]) == "truncated JPEG"


def test_image_size_of_a_cut_webp_is_refused() -> None:
    data = files.encoded(files.photo(), "WEBP")
    assert reason(data[: len(data) // 2]) == "truncated WebP"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
def test_image_size_of_a_file_cut_in_its_header_is_refused(kind: str) -> None:
    assert "truncated" in reason(files.encoded(files.corners(), kind)[:20])


def test_decode_image_of_a_jpeg_with_bytes_behind_it_is_served() -> None:
    pixels = files.corners()
    data = files.encoded(pixels, "JPEG", quality=95)
    assert level_error(decode_image(data + bytes(1000), None, LIMITS), pixels) < 3


def test_decode_image_of_a_jpeg_with_stray_bytes_before_a_marker_is_served() -> None:
    pixels = files.corners()
    data = files.encoded(pixels, "JPEG", quality=95)
    stray = data[:-2] + bytes(2) + data[-2:]
    assert level_error(decode_image(stray, None, LIMITS), pixels) < 3


def test_decode_image_of_a_png_with_a_wrong_byte_is_refused() -> None:
    data = bytearray(files.encoded(files.photo(64, 64), "PNG"))
    data[len(data) // 2] ^= 0xFF
    assert decode_reason(bytes(data)) == "damaged PNG"


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", "empty file"),
        (np.random.default_rng(3).bytes(4096), "not an image that is read (JPEG, PNG, WebP and GIF)"),
        (b"<html><body>404</body></html>", "HTML file, not an image that is read (JPEG, PNG, WebP and GIF)"),
        (b"\0\0\0\x18ftypavif" + bytes(64), "AVIF file, not an image that is read (JPEG, PNG, WebP and GIF)"),
    ],
    ids=["empty", "random", "html", "avif"],
)
def test_image_size_of_no_image_is_refused_by_name(data: bytes, wanted: str) -> None:
    assert reason(data) == wanted


@pytest.mark.parametrize("kind", ["TIFF", "BMP"])
def test_image_size_of_a_type_outside_the_list_is_refused_by_name(kind: str) -> None:
    assert reason(files.encoded(files.corners(), kind)).startswith(f"{kind} file, not an image")


def test_image_size_of_a_file_over_the_byte_limit_is_refused() -> None:
    data = files.encoded(files.corners(), "PNG")
    limits = MediaLimits(max_bytes=len(data) - 1, max_pixels=10_000)
    assert reason(data, limits) == f"{len(data)} bytes, over the limit of {len(data) - 1}"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
def test_decode_image_of_damaged_bytes_serves_or_refuses_the_same_every_time(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(
        files.encoded(files.photo(96, 128), kind, exif=files.exif(6))
        if kind != "GIF"
        else files.encoded(files.photo(96, 128), kind)
    )
    for place in rng.integers(8, len(data), 40 if seed else 4):
        data[place] = rng.integers(256)

    def outcome() -> bytes | str:
        try:
            return decode_image(bytes(data), (56, 56), MediaLimits(max_bytes=1 << 20, max_pixels=1 << 20)).tobytes()
        except ContentError as error:
            return str(error)

    assert outcome() == outcome()
