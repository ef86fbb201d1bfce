"""Steps with images and audio, made up by rule: documents, their plan, and what loaders send for a constructor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.media import Grid, unit_grids
from loadmaster_flight.wire.schemas import PIECES, MediaKind
from loadmaster_flight.wire.step_plan import WHOLE, Pieces, StepPlan, Units

VISION = {"patch": 2, "merge": 2, "temporal": 1, "min_pixels": 16, "max_pixels": 4096}
"""Patches of 12 numbers."""
HOP = 8
PLACEHOLDER = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Doc:
    """A document: runs of text with a picture or clip behind each, and text at the end.

    `media` are (kind, grid); `text` is the tokens before each and after the last.
    """

    bin: int
    pos: int
    media: tuple[tuple[MediaKind, Grid], ...] = ()
    text: int = 3
    source: int = 0
    is_masked: bool = False

    def starts(self, merge: int) -> list[int]:
        """First placeholder of each item."""
        starts, at = [], 0
        for kind, grid in self.media:
            starts.append(at + self.text)
            at += self.text + num_tokens(kind, grid, merge)
        return starts

    def tokens(self, merge: int) -> list[int]:
        ids: list[int] = []
        for kind, grid in self.media:
            ids += [1 + 1000 * self.pos + len(ids) + i for i in range(self.text)]
            ids += [PLACEHOLDER + int(kind)] * num_tokens(kind, grid, merge)
        return ids + [1 + 1000 * self.pos + len(ids) + i for i in range(self.text)]

    def units(self, vision: Any) -> list[Grid]:
        return [
            unit
            for kind, grid in self.media
            for unit in unit_grids(kind, grid, merge=vision.grid_merge, max_patches=vision.unit_cap)
        ]

    def pixels(self, vision: Any) -> list[np.ndarray]:
        """Of each unit, (patches, bytes of a row)."""
        rng = np.random.default_rng(self.pos)
        width = vision.patch_dim * vision.item_bytes
        return [rng.integers(1, 120, (int(np.prod(unit)), width), np.uint8) for unit in self.units(vision)]

    def audio(self) -> np.ndarray:
        """All clips, (frames, HOP)."""
        frames = sum(grid[0] for kind, grid in self.media if kind is MediaKind.AUDIO)
        return (np.arange(frames * HOP, dtype="<i2") + 100 * (self.pos % 100)).reshape(-1, HOP)


def num_tokens(kind: MediaKind, grid: Grid, merge: int) -> int:
    return grid[0] if kind is MediaKind.AUDIO else int(np.prod(grid)) // merge**2


def spec_of(*, seq_len: int, num_bins: int, mesh: dict[str, Any] | None = None, **vision: Any) -> RunSpec:
    """A run with images and audio; keywords change `media.vision`."""
    return RunSpec.model_validate(
        {
            "run": "pictures",
            "sources": {"web": {"uri": "web.jsonl", "transform": {"text": "text"}}},
            "mixture": {"weights": {"web": 1}},
            "batch": {"seq_len": seq_len, "microbatches": num_bins, "align": 8},
            "media": {"vision": VISION | vision, "audio": {"hop": HOP, "rate": 16000}},
            "mesh": mesh or {},
        }
    )


def plan_of(
    docs: Sequence[Doc],
    spec: RunSpec,
    *,
    dp: int,
    ranks: Sequence[int] | None = None,
    step: int = 0,
    is_final: bool = False,
) -> StepPlan:
    """The step of some documents. `ranks` encode their units, dealt in turn in the order of the plan; None: inline."""
    zeros = np.zeros(len(docs), np.int64)
    pieces = Pieces(
        source=np.array([d.source for d in docs], np.int64),
        pos=np.array([d.pos for d in docs], np.int64),
        bin=np.array([d.bin for d in docs], np.int64),
        epoch=zeros,
        lane=zeros,
        shard=zeros,
        block=zeros,
        first_token=zeros,
        num_tokens=zeros + WHOLE,
    )
    order = pieces.canonical_order()
    counts = [len(docs[i].units(spec.media.vision)) for i in order]
    num = sum(counts)
    units = Units.empty()
    if ranks is not None:
        rank_U = np.resize(np.array(ranks, np.int64), num) if num else np.zeros(0, np.int64)
        units = Units(piece_U=np.repeat(np.arange(len(order)), counts), rank_U=rank_U)
    sizes = [len(d.tokens(spec.media.vision.grid_merge)) for d in docs]
    return StepPlan(
        step=step,
        is_final=is_final,
        num_bins=spec.batch.num_bins_at(0),
        seq_len=spec.batch.capacity_at(0),
        dp=dp,
        num_tokens=sum(sizes),
        global_valid_tokens=sum(sizes) - len(docs),
        weights_S=np.array([1 << 30], np.int64),
        source_tokens_S=np.array([sum(sizes)], np.int64),
        pieces=pieces.take(order),
        units=units,
        is_hybrid=ranks is not None,
    ).with_digest()


def sent(
    plan: StepPlan, docs: Sequence[Doc], spec: RunSpec, *, dp_ranks: Collection[int], encoder_ranks: Collection[int]
) -> pa.Table:
    """What loaders answer to a constructor's tickets: every row in a chunk of its own."""
    part = plan.of_ranks(set(dp_ranks), encoder_ranks)
    by_key = {(d.source, d.pos): d for d in docs}
    rows = []
    for i in range(len(part.pieces)):
        doc = by_key[int(part.pieces.source[i]), int(part.pieces.pos[i])]
        ranks = part.units.rank_U[part.units.piece_U == i].tolist()
        is_here = doc.bin // plan.bins_per_rank in dp_ranks
        wanted = [u for u, rank in enumerate(ranks) if rank in encoder_ranks] if plan.is_hybrid else None
        rows.append(row_of(doc, spec, step=plan.step, has_tokens=is_here, units=wanted))
    return pa.Table.from_batches([pa.RecordBatch.from_pylist([row], schema=PIECES) for row in rows], schema=PIECES)


def row_of(
    doc: Doc, spec: RunSpec, *, step: int = 0, has_tokens: bool = True, units: Sequence[int] | None = None
) -> dict[str, Any]:
    """A row of PIECES; `units` are those whose pixels are sent, None: all."""
    vision = spec.media.vision
    merge = vision.grid_merge
    tokens, pixels, audio = doc.tokens(merge), doc.pixels(vision), doc.audio()
    chosen = list(range(len(pixels)) if units is None else units)
    row = dict.fromkeys(PIECES.names) | {
        "step": step,
        "bin": doc.bin,
        "source": doc.source,
        "pos": doc.pos,
        "row": 1000 + doc.pos,
        **dict.fromkeys(("epoch", "shard", "block", "first_token"), 0),
        "num_tokens": len(tokens),
        "tokens": tokens if has_tokens else [],
        "is_masked": doc.is_masked,
    }
    if not doc.media:
        return row
    return row | {
        "media_kind": [int(kind) for kind, _ in doc.media],
        "media_grid": [list(grid) for _, grid in doc.media],
        "media_start": doc.starts(merge),
        "media_units": chosen,
        "pixels": b"".join(pixels[u].tobytes() for u in chosen),
        "audio": audio.tobytes() if has_tokens else b"",
    }


def masked(doc: Doc) -> Doc:
    return replace(doc, is_masked=True)
