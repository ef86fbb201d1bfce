"""Sizes of the trained networks, from which a document's cost is computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator

from .model import SpecModel, refuse

Size = Annotated[int, Field(ge=1)]


class BackboneSpec(SpecModel):
    """A dense decoder."""

    hidden: Size
    """Width."""
    layers: Size
    """Number of layers."""
    ffn: Size
    """Width of the feed-forward part."""
    vocab: Size
    """Size of the vocabulary."""
    kv_hidden: Size | None = None
    """Width of keys and of values; by default `hidden`, less with grouped queries."""
    swiglu: bool = True
    """The feed-forward part has a gate: three matrices, not two."""
    causal: bool = True
    """Attention skips the masked half."""

    @model_validator(mode="after")
    def _keys_fit(self) -> BackboneSpec:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        if self.kv_hidden is not None and self.kv_hidden > self.hidden:
            yield f"kv_hidden must be at most hidden {self.hidden}, got {self.kv_hidden}"


class EncoderSpec(SpecModel):
    """A vision transformer."""

    hidden: Size
    """Width."""
    layers: Size
    """Number of layers."""
    ffn: Size | None = None
    """Width of the feed-forward part; by default 4 * hidden."""
    patch_dim: Annotated[int, Field(ge=0)] = 0
    """Numbers of one patch, for the cost of its embedding."""


class ModelSpec(SpecModel):
    """The networks that are trained. What is not given has the shape of a 12B decoder and of a 2B encoder."""

    backbone: BackboneSpec | None = None
    """The decoder."""
    encoder: EncoderSpec | None = None
    """The vision encoder."""
