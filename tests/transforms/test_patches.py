"""Patches: sizes and order of Qwen2-VL, checked against transformers where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadmaster_flight.sources.blocks import ContentError
from loadmaster_flight.transforms.patches import normalised, planes_to_patches, smart_resize, to_patches
from support import media_files as files

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@pytest.fixture(scope="module")
def qwen() -> Any:
    """The image processor of transformers that needs no torchvision."""
    name = "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl"
    return pytest.importorskip(name, reason="transformers has no Qwen2-VL processor on Pillow")


def test_smart_resize_of_many_sizes_is_what_transformers_says(qwen: Any) -> None:
    rng = np.random.default_rng(0)
    for height, width in np.exp(rng.uniform(0, 9, (3000, 2))).astype(int).tolist():
        for least, most in ((3136, 1_003_520), (784, 50_176), (200_704, 401_408)):
            if max(height, width) <= 200 * min(height, width):
                wanted = qwen.smart_resize(height, width, 28, least, most)
                assert smart_resize(height, width, 28, least, most) == wanted, (height, width, least, most)


def test_smart_resize_of_a_thin_strip_is_refused() -> None:
    with pytest.raises(ContentError, match="4x900 pixels: one side is over 200 times the other"):
        smart_resize(4, 900, 28, 3136, 1_003_520)


def test_to_patches_of_an_image_is_what_transformers_makes_of_it(qwen: Any) -> None:
    pixels = files.photo(140, 196)
    theirs = qwen.Qwen2VLImageProcessorPil()(pixels, return_tensors="np", input_data_format="channels_last")
    assert theirs["image_grid_thw"].tolist() == [[1, 10, 14]]
    patches = to_patches(pixels[np.newaxis], patch=14, merge=2, temporal=2)
    ours = normalised(patches, mean=MEAN, std=STD, dtype="float32")
    assert ours.shape == theirs["pixel_values"].shape
    assert np.abs(ours - theirs["pixel_values"]).max() < 1e-5


def slow_patches(frames: np.ndarray, patch: int, merge: int, temporal: int) -> np.ndarray:
    """The order spelled out: one patch after the other."""
    height, width = frames.shape[1] // patch, frames.shape[2] // patch
    rows = []
    for t in range(0, len(frames), temporal):
        for row, column in ((r, c) for r in range(0, height, merge) for c in range(0, width, merge)):
            for y, x in ((row + i, column + j) for i in range(merge) for j in range(merge)):
                cell = frames[t : t + temporal, y * patch : (y + 1) * patch, x * patch : (x + 1) * patch]
                rows.append(cell.transpose(3, 0, 1, 2).ravel())
    return np.stack(rows)


@pytest.mark.parametrize(("patch", "merge", "temporal"), [(14, 2, 2), (16, 2, 2), (14, 1, 1), (4, 3, 4)])
def test_to_patches_of_a_video_follows_time_rows_and_merged_cells(patch: int, merge: int, temporal: int) -> None:
    shape = (2 * temporal, patch * merge * 2, patch * merge * 3, 3)
    frames = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    ours = to_patches(frames, patch=patch, merge=merge, temporal=temporal)
    assert (ours == slow_patches(frames, patch, merge, temporal)).all()


def test_to_patches_of_too_few_frames_repeats_the_last() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 3), np.uint8)
    filled = np.concatenate([frames, frames[-1:]])
    assert (to_patches(frames, patch=14, merge=2, temporal=2) == slow_patches(filled, 14, 2, 2)).all()


def test_planes_to_patches_of_turned_planes_equals_their_copy() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (56, 84, 3), np.uint8)
    turned = [pixels[::-1, ::-1, channel].T for channel in range(3)]
    ours = planes_to_patches((turned[0], turned[1], turned[2]), patch=14, merge=2, temporal=2)
    copy = np.stack(turned, axis=-1)[np.newaxis]
    assert (ours == to_patches(np.ascontiguousarray(copy), patch=14, merge=2, temporal=2)).all()


def test_to_patches_with_out_writes_there() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (1, 28, 56, 3), np.uint8)
    buffer = np.zeros((10, 1176), np.uint8)
    served = to_patches(frames, patch=14, merge=2, temporal=2, out=buffer[1:9])
    assert served.base is buffer
    assert (buffer[1:9] == to_patches(frames, patch=14, merge=2, temporal=2)).all()
    assert not buffer[0].any()
    assert not buffer[9].any()


@pytest.mark.parametrize("shape", [(1, 28, 30, 3), (1, 14, 28, 3)])
def test_to_patches_of_a_size_that_does_not_divide_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must be a multiple of patch \* merge = 28"):
        to_patches(np.zeros(shape, np.uint8), patch=14, merge=2, temporal=2)


def test_to_patches_with_out_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"out must be contiguous uint8 \(4, 1176\), got uint8 \(4, 588\)"):
        to_patches(np.zeros((1, 28, 28, 3), np.uint8), patch=14, merge=2, temporal=2, out=np.zeros((4, 588), np.uint8))


def test_normalised_to_each_dtype_rounds_the_float32_value() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    patches = np.random.default_rng(0).integers(0, 256, (8, 1176), np.uint8)
    channel = np.repeat(np.arange(3), 392)
    exact = (patches.astype(np.float32) / np.float32(255) - np.float32(MEAN)[channel]) / np.float32(STD)[channel]
    assert (normalised(patches, mean=MEAN, std=STD, dtype="float16") == exact.astype(np.float16)).all()
    bits = normalised(patches, mean=MEAN, std=STD, dtype="bfloat16")
    assert bits.dtype == np.uint16
    rounded = torch.from_numpy(exact).to(torch.bfloat16)
    assert torch.equal(torch.from_numpy(bits).view(torch.bfloat16), rounded)


def test_normalised_to_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="dtype must be float32, float16 or bfloat16, got 'int8'"):
        normalised(np.zeros((1, 3), np.uint8), mean=MEAN, std=STD, dtype="int8")
