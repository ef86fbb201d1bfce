"""The device mesh of a run: axes, and what each of them does to a batch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .model import SpecModel

AxisName = Literal["pp", "dp", "cp", "tp"]


class MeshSpec(SpecModel):
    """Sizes of the axes. `dp: auto` takes what world_size leaves. `order` is slowest axis first."""

    dp: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    pp: Annotated[int, Field(ge=1)] = 1
    cp: Annotated[int, Field(ge=1)] = 1
    tp: Annotated[int, Field(ge=1)] = 1
    order: tuple[AxisName, ...] = ("pp", "dp", "cp", "tp")

    @model_validator(mode="after")
    def _each_once(self) -> MeshSpec:
        if sorted(self.order) != ["cp", "dp", "pp", "tp"]:
            raise ValueError(f"order must name pp, dp, cp and tp once each, got {list(self.order)}")
        return self
