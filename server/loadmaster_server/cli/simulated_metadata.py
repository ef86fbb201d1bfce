"""Where the lengths of a simulated run come from: its sources, some rows of them, or a stated distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.spec.manifest import UnitKind
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_server.planning.simulation import Lengths, StatedSource
from loadmaster_server.planning.simulation.stepping import Measure

Metadata = tuple[Measure, list[int], list[int | None]]
"""What measures; of each source its lanes, and its blocks where their number is known."""
STATED_LANES = 8


@contextmanager
def simulated_metadata(
    spec: RunSpec, freeze: Callable[[], list[SourceManifest]], *, lengths: Lengths | None, rows: int | None
) -> Iterator[Metadata]:
    """What answers demands.

    Args:
        freeze: Opens the sources; not called where lengths are stated.
        lengths: Of the documents of every source; None: as they are in the sources.
        rows: Measure that many of each source and draw all documents from these; None: all that the steps need.

    Raises:
        BadRequestError: The first `rows` of a source have no sample.
    """
    if lengths is not None:
        lanes = [source.lanes or STATED_LANES for source in spec.sources.values()]
        yield _stated(spec, [lengths] * len(lanes), lanes)
        return
    manifests = freeze()
    engine = LoaderEngine(spec, manifests, cache_dir=None)
    try:
        if rows is not None:
            observed = [_observed(engine, manifest, rows) for manifest in manifests]
            yield _stated(spec, observed, [manifest.lanes for manifest in manifests])
            return
        yield (
            lambda demand: engine.measure(demand.source, demand.epoch, demand.cursors, demand.rows_per_lane),
            [manifest.lanes for manifest in manifests],
            [_num_blocks(manifest) for manifest in manifests],
        )
    finally:
        engine.close()


def _stated(spec: RunSpec, lengths: Sequence[Lengths], lanes: list[int]) -> Metadata:
    stated = [
        StatedSource(i, pair[0], pair[1], seed=spec.seed) for i, pair in enumerate(zip(lengths, lanes, strict=True))
    ]
    return (lambda demand: stated[demand.source].measure(demand)), lanes, [None] * len(lanes)


def _observed(engine: LoaderEngine, manifest: SourceManifest, num_rows: int) -> Lengths:
    """Lengths of the first rows of all lanes of a source, without those that are passed over."""
    cursors = [[lane, 0, 0, 0] for lane in range(manifest.lanes)]
    found = engine.measure(manifest.ordinal, 0, cursors, -(-num_rows // manifest.lanes))
    tokens_N = found.column("num_tokens").to_numpy()[found.column("verdict").to_numpy() == Verdict.OK]
    if not len(tokens_N):
        raise BadRequestError(
            f"--rows must meet a sample of each source, got none in {num_rows} rows of {manifest.name}"
        )
    return Lengths.observed(manifest.name, tokens_N)


def _num_blocks(manifest: SourceManifest) -> int | None:
    """Blocks of a source where its shards tell without being read."""
    if manifest.unit_kind is UnitKind.SHARD:
        return None
    return sum(len(shard.block_sizes or ()) for shard in manifest.shards)
