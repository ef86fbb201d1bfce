"""Taking stock of a run's sources: what `loadmaster check` prints."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from loadmaster_flight.sources.survey import Survey, survey_source
from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_server.freezing import MAX_THREADS, FreezeProgress, joined, shuffle_shares

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStock:
    """One row of the inventory.

    Attributes:
        blocks: None where only reading everything would tell.
        share: Of the mixture at step 0, in [0, 1].
        seconds: What counting took.
    """

    source: str
    format: str
    shards: int
    blocks: int | None
    size_bytes: int
    num_samples: int
    is_estimate: bool
    lanes: int
    share: float
    seconds: float
    warnings: tuple[str, ...]

    def to_tree(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def take_stock(
    spec: RunSpec, manifests: Sequence[SourceManifest], progress: FreezeProgress | None = None
) -> list[SourceStock]:
    """Survey every source, several at a time.

    Raises:
        SourceError: Of the sources that cannot be read, a line each.
    """
    with ThreadPoolExecutor(min(MAX_THREADS, len(manifests)), thread_name_prefix="survey") as pool:
        jobs = [pool.submit(_survey, spec, manifest, progress) for manifest in manifests]
    failures = [error for job in jobs if isinstance(error := job.exception(), LoadmasterError)]
    if failures:
        raise joined(failures)
    shares = shares_at_start(spec)
    surveys = [job.result() for job in jobs]
    return [_row(m, survey, shares[m.name]) for m, survey in zip(manifests, surveys, strict=True)]


def shares_at_start(spec: RunSpec) -> dict[str, float]:
    """Each source's share of the mixture at step 0; they sum to 1."""
    weights = {name: ramp.at(0) for name, ramp in spec.mixture.weights.items()}
    total = sum(weights.values())
    return {name: weights.get(name, 0.0) / total for name in spec.sources}


def _survey(spec: RunSpec, manifest: SourceManifest, progress: FreezeProgress | None) -> Survey:
    name = manifest.name

    def advance(done: int, of: int) -> None:
        if progress is not None:
            progress(name, done, of)

    share = shuffle_shares(spec)[name]
    return survey_source(manifest, spec.sources[name], advance, shuffle_bytes=share or None)


def _row(manifest: SourceManifest, survey: Survey, share: float) -> SourceStock:
    return SourceStock(
        source=manifest.name,
        format=manifest.format.value,
        shards=survey.shards,
        blocks=survey.blocks,
        size_bytes=survey.size_bytes,
        num_samples=survey.num_rows,
        is_estimate=survey.is_estimate,
        lanes=manifest.lanes,
        share=share,
        seconds=survey.seconds,
        warnings=survey.warnings,
    )


def stock_table(rows: Sequence[SourceStock], *, seconds: float) -> Table:
    """The inventory with its totals.

    Args:
        seconds: What opening and counting took, all sources together.
    """
    table = Table("source", "format", show_footer=True)
    table.columns[0].footer = f"{len(rows)} sources" if len(rows) != 1 else "1 source"
    blocks = [row.blocks for row in rows]
    totals = {
        "shards": f"{sum(row.shards for row in rows):,}",
        "blocks": _count(None if None in blocks else sum(n for n in blocks if n is not None)),
        "bytes": readable_bytes(sum(row.size_bytes for row in rows)),
        "samples": _samples(sum(row.num_samples for row in rows), any(row.is_estimate for row in rows)),
        "lanes": f"{sum(row.lanes for row in rows):,}",
        "share": f"{sum(row.share for row in rows):.2%}",
        "seconds": f"{seconds:.1f}",
    }
    for name, total in totals.items():
        table.add_column(name, footer=total, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: SourceStock) -> tuple[str, ...]:
    samples = _samples(row.num_samples, row.is_estimate)
    counts = (f"{row.shards:,}", _count(row.blocks), readable_bytes(row.size_bytes), samples)
    return (row.source, row.format, *counts, f"{row.lanes:,}", f"{row.share:.2%}", f"{row.seconds:.1f}")


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _samples(number: int, is_estimate: bool) -> str:
    return f"{'~' if is_estimate else ''}{number:,}"


def readable_bytes(size_bytes: int) -> str:
    """A size in the largest unit that leaves it at least 1."""
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {UNITS[unit]}" if unit == 0 else f"{size:.1f} {UNITS[unit]}"
