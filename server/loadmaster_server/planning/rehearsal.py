"""Trying a user's strategy on an invented step, so that its faults show before a run begins.

# N = pieces, B = bins
"""

from __future__ import annotations

import dataclasses

import numpy as np

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.spec.mesh import TpMode
from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.wire.errors import SpecError

from .columns import nothing
from .lists import Lists
from .pieces import NUM_COLUMNS, POS, SAMPLE_TOKENS, SOURCE, TOKENS, PieceTable
from .place_tree import ClientPlaceTree
from .placement import Placer
from .rows import Int64Array
from .rules import StepShape, rules_of
from .strategies import BUILT_IN

MAX_RANKS, MAX_PER_RANK, DOCS_PER_ROW = 4096, 4, 5
_SHARE_UNIT = 1 << 30


def rehearse(spec: RunSpec, *, stream: str = TRAIN, tree: ClientPlaceTree | None = None) -> None:
    """Run the spec's strategy once on a small step of invented lengths.

    One that comes with Loadmaster is tried only where not every mesh suits it.

    Args:
        stream: Whose steps.
        tree: The mesh; by default the spec's, where dp is auto with as many ranks as its steps allow.

    Raises:
        SpecError: There is no such strategy, it breaks a rule, or it needs batches of its own for ranks that do not
            read; names the rule, the strategy and an invented sample.
    """
    tree = _small_tree(spec) if tree is None else tree
    placer = Placer.of(spec, tree)
    must_not_be_hybrid = placer.has_images and spec.mesh.tp_mode is TpMode.BROADCAST and tree.size("tp") > 1
    if placer.name in BUILT_IN and not must_not_be_hybrid:
        return
    shape = rules_of(spec, stream).shape_at(0)
    num_bins = tree.size("dp") * min(MAX_PER_RANK, shape.num_bins // tree.size("dp") or 1)
    shape = dataclasses.replace(shape, num_bins=num_bins)
    pieces, packed_N = _invented(shape, len(spec.sources))
    weights = [_SHARE_UNIT // len(spec.sources)] * len(spec.sources)
    placed = placer.place(placer.graph(pieces, packed_N, shape, weights))
    if must_not_be_hybrid and placed.encoder_K is not None:
        rule = "mesh.tp_mode must be read where every rank encodes images, got broadcast: set it to read, or name a"
        raise SpecError(
            f"strategy {placer.name}: {rule} strategy that leaves images with documents", field="mesh.tp_mode"
        )


def _small_tree(spec: RunSpec) -> ClientPlaceTree:
    """The spec's mesh. Where dp is auto the most ranks that G allows: what divides the real dp divides that."""
    num_bins = spec.batch.num_bins_at(0)
    stated = MAX_RANKS if spec.mesh.dp == "auto" else min(spec.mesh.dp, MAX_RANKS)
    dp = next(ranks for ranks in range(min(stated, num_bins), 0, -1) if num_bins % ranks == 0)
    sizes = {"pp": spec.mesh.pp, "dp": dp, "cp": spec.mesh.cp, "tp": spec.mesh.tp}
    return ClientPlaceTree.of({str(axis): sizes[axis] for axis in spec.mesh.order})


def _invented(shape: StepShape, num_sources: int) -> tuple[PieceTable, Int64Array]:
    """Pieces that fill every row but for a rest, in canonical order, and the bin of each."""
    units = shape.row_len // shape.align
    docs = 1 if shape.layout == "pad" else max(1, min(DOCS_PER_ROW, units))
    num = shape.num_bins * shape.rows * docs
    rng = np.random.Generator(np.random.PCG64(0))
    values_NP = np.zeros((num, NUM_COLUMNS), np.int64)
    values_NP[:, SOURCE] = np.arange(num) * num_sources // num
    values_NP[:, POS] = np.arange(num)
    values_NP[:, TOKENS] = rng.integers(1, units // docs * shape.align + 1, num)
    values_NP[:, SAMPLE_TOKENS] = values_NP[:, TOKENS]
    packed_N = np.arange(num) // (shape.rows * docs)
    pieces = PieceTable(values_NP=values_NP, spans_N=nothing(num), patches=Lists.nothing(num))
    return pieces, rng.permutation(packed_N)
