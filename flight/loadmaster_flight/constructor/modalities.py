"""What a run's spec makes of the schema of its batches."""

from __future__ import annotations

import pyarrow as pa

from loadmaster_flight.spec import AudioSpec, MediaSpec, RunSpec, VisionSpec
from loadmaster_flight.wire.modalities import AudioFields, VisionFields
from loadmaster_flight.wire.schemas import batch_schema


def run_schema(spec: RunSpec, *, seq_len: int, is_hybrid: bool = False) -> pa.Schema:
    """Schema of a run's whole microbatches."""
    return media_schema(spec.media, seq_len=seq_len, is_hybrid=is_hybrid)


def media_schema(media: MediaSpec, *, seq_len: int, is_hybrid: bool = False) -> pa.Schema:
    """Schema of whole microbatches with the given media."""
    vision, audio = vision_fields(media.vision), audio_fields(media.audio)
    return batch_schema(seq_len=seq_len, vision=vision, audio=audio, is_hybrid=is_hybrid)


def vision_fields(spec: VisionSpec | None) -> VisionFields | None:
    """How readers are told to read pixels."""
    if spec is None:
        return None
    return VisionFields(
        layout=spec.layout.value,
        dtype=spec.dtype.value,
        patch_dim=spec.patch_dim,
        merge=spec.grid_merge,
        patch=spec.patch,
        temporal=spec.temporal,
        size=spec.size,
        tokens_per_frame=spec.tokens_per_frame,
        unit_cap=spec.unit_cap,
        mean=spec.mean,
        std=spec.std,
    )


def audio_fields(spec: AudioSpec | None) -> AudioFields | None:
    """How readers are told to read audio."""
    return None if spec is None else AudioFields(rate=spec.rate, hop=spec.hop, merge=spec.merge)
