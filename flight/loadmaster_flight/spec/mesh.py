"""The device mesh of a run: axes, and what each of them does to a batch."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from .model import SpecModel

AxisName = Literal["pp", "dp", "cp", "tp"]
STAGE_NAMES = ("first", "last", "all")


def _stages(value: object) -> object:
    """One stage or a list of them."""
    named = value if isinstance(value, (list, tuple)) else [value]
    for stage in named:
        is_number = isinstance(stage, int) and not isinstance(stage, bool) and stage >= 0
        if not is_number and stage not in STAGE_NAMES:
            raise ValueError(f"must be {', '.join(STAGE_NAMES)}, a stage's number or a list of these, got {stage!r}")
    if not named:
        raise ValueError("must name at least one stage, got an empty list")
    return tuple(named)


Stages = Annotated[tuple[str | int, ...], BeforeValidator(_stages)]


_GROUPS = {
    **dict.fromkeys(("image_kind", "grid_thw", "image_doc", "image_token_start", "unit_rank"), "images"),
    **dict.fromkeys(("audio_frames", "audio_doc", "audio_token_start"), "audio"),
}
"""Fields that are of use together only -> what they are called in `stage_fields`."""


class TpMode(StrEnum):
    """read: every tp rank fetches the constructor's one copy. broadcast: tp rank 0 does, and hands it on."""

    READ = "read"
    BROADCAST = "broadcast"


class StageFields(SpecModel):
    """Pipeline stages that get a field: first, last, all, their numbers, or a list of these.

    All other fields go to every stage: cu_seqlens and what says whose tokens these are. What the client derives goes
    with what it is derived from: loss_mask with labels, position_ids and max_seqlen with cu_seqlens.
    """

    tokens: Stages = ("first",)
    """Stages that get `tokens`."""
    labels: Stages = ("last",)
    """Stages that get `labels` (and `loss_mask`)."""
    pixel_values: Stages = ("first",)
    """Where ranks of their own encode images every stage gets what it encodes, whatever is said here."""
    images: Stages = ("first",)
    """What says whose images these are: image_kind, grid_thw, image_doc, image_token_start, unit_rank."""
    audio_values: Stages = ("first",)
    """Stages that get the samples of audio."""
    audio: Stages = ("first",)
    """What says whose audio this is: audio_frames, audio_doc, audio_token_start."""


class MeshSpec(SpecModel):
    """Sizes of the axes. `dp: auto` takes what world_size leaves. `order` is slowest axis first."""

    dp: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Data-parallel ranks; auto takes what world_size leaves. Must divide the microbatches of a step."""
    pp: Annotated[int, Field(ge=1)] = 1
    """Pipeline stages."""
    cp: Annotated[int, Field(ge=1)] = 1
    """Context-parallel ranks, which share the tokens of every document; 2 * cp must divide align."""
    tp: Annotated[int, Field(ge=1)] = 1
    """Tensor-parallel ranks, which get the same bytes."""
    order: tuple[AxisName, ...] = ("pp", "dp", "cp", "tp")
    """The axes, slowest first: how ranks are numbered."""
    stage_fields: StageFields = StageFields()
    """Which pipeline stages get tokens, labels, images and audio."""
    tp_mode: TpMode = TpMode.READ
    """Who of a tp group fetches; with broadcast a trainer wraps its stream in `loadmaster.broadcast`."""
    speed: dict[int, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Relative speed of ranks that are not as fast as the others, whose speed is 1."""

    @model_validator(mode="after")
    def _each_once(self) -> MeshSpec:
        if sorted(self.order) != ["cp", "dp", "pp", "tp"]:
            raise ValueError(f"order must name pp, dp, cp and tp once each, got {list(self.order)}")
        return self

    def speed_of_rank(self) -> dict[int, float]:
        """Rank -> relative speed, of those that have one of their own."""
        return dict(self.speed)

    def stages_of(self, field: str) -> tuple[str | int, ...]:
        """The stages that get a field of a batch."""
        stages: tuple[str | int, ...] = getattr(self.stage_fields, _GROUPS.get(field, field), ("all",))
        return stages

    def is_on_stage(self, field: str, *, stage: int, num_stages: int) -> bool:
        """Whether a pipeline stage of `num_stages` gets a field of a batch."""
        named = self.stages_of(field)
        is_end = ("first" in named and stage == 0) or ("last" in named and stage == num_stages - 1)
        return is_end or "all" in named or stage in named

    def fetches(self, coords: Mapping[str, int]) -> bool:
        """Whether the rank at these coordinates fetches its batches itself."""
        return self.tp_mode is TpMode.READ or coords.get("tp", 0) == 0
