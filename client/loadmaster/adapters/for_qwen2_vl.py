"""Qwen2-VL and its likes in Hugging Face transformers: one packed sequence with images and videos."""

from __future__ import annotations

import importlib
from typing import Any

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.schemas import MediaKind

from .. import vision
from ..batch import Microbatch
from ..images import Images
from ..mrope import mrope_positions
from .for_transformers import transformers


def qwen2_vl(microbatch: Microbatch, *, device: Any = None, dtype: Any = None) -> dict[str, Any]:
    """What `transformers` gives, with the images and videos of its documents. `use_cache=False` as there.

    A dummy image is left out, since these models want as many placeholders as embeddings: where encoders meet in
    collectives, run the encoder yourself, and `loadmaster.encoder.merge`.

    Args:
        microbatch: A whole one: cp 1, a stage with tokens, labels and images.
        device: Where pixels are normalised, and stay; by default the cpu.
        dtype: Of the pixels; by default float32.

    Returns:
        All that `transformers` returns, and
        position_ids: Shape (4, 1, T), int64: places in the document, by which documents are kept apart, then time,
            height and width.
        pixel_values, pixel_values_videos: Shape (patches, size), normalised; only where there are any.
        image_grid_thw, video_grid_thw: Shape (images, 3), int64; likewise.

    Raises:
        MeshError: The microbatch is cut for cp.
        BadRequestError: It has no images, or ranks encode images for each other.
    """
    fields, images = transformers(microbatch), microbatch.images
    if images is None or images.grid_thw is None:
        raise BadRequestError("qwen2_vl needs images: the run has no media.vision, or the stage gets none")
    if images.is_hybrid:
        raise BadRequestError("qwen2_vl encodes a rank's own images; here ranks encode for each other: use encoder")
    torch = importlib.import_module("torch")
    places = torch.from_numpy(mrope_positions(images, microbatch.cu_seqlens))
    fields["position_ids"] = torch.cat([fields["position_ids"], places]).unsqueeze(1)
    return fields | ({} if images.is_dummy else _pixels(images, torch, device, dtype))


def _pixels(images: Images, torch: Any, device: Any, dtype: Any) -> dict[str, Any]:
    """Pixels and grids by kind, in the order of their documents."""
    grids, kinds = torch.as_tensor(images.grid_thw).to(torch.int64), torch.as_tensor(images.kinds)
    parts = torch.as_tensor(images.pixel_values).split(grids.prod(dim=1).tolist())
    found: dict[str, Any] = {}
    for kind, pixels, grid in (
        (MediaKind.IMAGE, "pixel_values", "image_grid_thw"),
        (MediaKind.VIDEO, "pixel_values_videos", "video_grid_thw"),
    ):
        chosen = (kinds == int(kind)).nonzero().flatten().tolist()
        if chosen:
            moved = torch.cat([parts[i] for i in chosen]).to(device)
            found |= {pixels: vision.normalise(moved, images.mean, images.std, dtype), grid: grids[chosen]}
    return found
