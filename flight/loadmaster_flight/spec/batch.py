"""What a step looks like: G microbatches of C tokens, and how documents fill them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from .model import SpecModel, refuse
from .schedule import Ramp

MAX_TOKENS = 1 << 31
"""Positions in a microbatch are int32."""


class Layout(StrEnum):
    """pack: whole documents, best fit. concat: documents cut where a microbatch ends. pad: one document a row."""

    PACK = "pack"
    CONCAT = "concat"
    PAD = "pad"


class OverLong(StrEnum):
    """What happens to a document longer than a microbatch (or a row): cut into pieces, or left out and counted."""

    SPLIT = "split"
    SKIP = "skip"


class OutlierDelay(SpecModel):
    """Long documents wait until every microbatch of a step gets one of about the same length."""

    max_age_steps: Annotated[int, Field(ge=1, le=1000)]
    """A document that has waited this many steps goes on at once."""


class BatchSpec(SpecModel):
    """G microbatches a step, all ranks together, of seq_len tokens (pad: rows x seq_len)."""

    seq_len: Ramp
    """Tokens of a microbatch (of a row with layout pad). May ramp over steps, rounded down to c_multiple."""
    microbatches: Ramp
    """G: microbatches of one optimizer step, all ranks together. May ramp, rounded down to g_multiple."""
    layout: Layout = Layout.PACK
    """`pack`: whole documents, best fit. `concat`: documents cut where a microbatch ends. `pad`: one document a row."""
    rows: Annotated[int, Field(ge=1)] = 1
    """Rows of a microbatch with layout pad."""
    align: Annotated[int, Field(ge=1)] = 16
    """Every document is padded to a multiple of this; a mesh needs align % (2*cp) = 0 where cp > 1."""
    over_long: OverLong = OverLong.SPLIT
    """A document longer than a microbatch (a row): cut into pieces (`split`), or left out and counted (`skip`)."""
    g_multiple: Annotated[int, Field(ge=1)] = 1
    """Microbatch counts are rounded down to this multiple; dp must divide it where they ramp."""
    c_multiple: Annotated[int | None, Field(ge=1)] = None
    """Sequence lengths are rounded down to this multiple; by default align."""
    overdraw: Annotated[float, Field(ge=0, le=0.5)] = 0.01
    """Tokens drawn beyond a step's capacity, as a share of it, so that packing has a choice."""
    outlier_delay: OutlierDelay | None = None
    """Hold documents of a quarter of a microbatch and more back; pays with pipeline stages and long contexts only."""

    @model_validator(mode="after")
    def _divisible(self) -> BatchSpec:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        multiple = self.c_multiple or self.align
        if multiple % self.align:
            yield f"align must divide c_multiple, got align {self.align} and c_multiple {multiple}"
        for knot in self.seq_len.knots:
            if len(self.seq_len.knots) == 1 and knot.value % self.align:
                yield f"align must divide seq_len, got align {self.align} and seq_len {knot.value:g}"
            elif knot.value < multiple:
                name = "align" if self.c_multiple is None else "c_multiple"
                yield f"seq_len must be at least {name} {multiple}, got {knot.value:g}"
            if knot.value * self.rows >= MAX_TOKENS:
                yield f"seq_len * rows must be less than {MAX_TOKENS}, got {knot.value:g} * {self.rows}"
        for knot in self.microbatches.knots:
            if knot.value < self.g_multiple:
                yield f"microbatches must be at least g_multiple {self.g_multiple}, got {knot.value:g}"
        if self.layout is not Layout.PAD and self.rows != 1:
            yield f"rows must be 1 unless layout is pad, got {self.rows}"
        if self.outlier_delay is not None and self.layout is not Layout.PACK:
            yield f"outlier_delay needs layout pack, got {self.layout.value}"

    def num_bins_at(self, step: int) -> int:
        """G at a step."""
        return int(self.microbatches.at(step)) // self.g_multiple * self.g_multiple

    def row_len_at(self, step: int) -> int:
        """Longest piece at a step: seq_len, rounded."""
        multiple = self.c_multiple or self.align
        return int(self.seq_len.at(step)) // multiple * multiple

    def capacity_at(self, step: int) -> int:
        """C at a step: tokens of one microbatch, all its rows together."""
        return self.row_len_at(step) * self.rows
