"""Freezing all sources of a run: what `check`, `up` and embedded runs do before the first step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.transforms import build_transform
from loadmaster_flight.transforms.trial import refuse_fruitless
from loadmaster_flight.wire.errors import LoadmasterError

MAX_THREADS = 16

FreezeProgress = Callable[[str, int, int], None]
"""Called with (source, files done, files in all) by the thread that freezes the source; (source, n, n) at its end."""


def freeze_run(
    spec: RunSpec, *, only: Collection[str] | None = None, progress: FreezeProgress | None = None
) -> list[SourceManifest]:
    """Freeze the sources of a run, several at a time.

    Args:
        spec: With absolute paths, as `load_run_spec` returns it.
        only: Names of the sources to freeze; by default all. Ordinals are those of the whole run.

    Returns:
        One manifest a source, in ordinal order.

    Raises:
        LoadmasterError: Of the first source that failed. The message has one line a failed source, and
            `details["faults"]` each one's message and field.
    """
    shares = shuffle_shares(spec)
    names = [name for name in spec.source_names if only is None or name in only]
    with ThreadPoolExecutor(min(MAX_THREADS, max(1, len(names))), thread_name_prefix="freeze") as pool:
        jobs = [pool.submit(_freeze, spec, name, shares[name], progress) for name in names]
    failures = [error for job in jobs if isinstance(error := job.exception(), LoadmasterError)]
    if failures:
        raise joined(failures)
    return [job.result() for job in jobs]


def shuffle_shares(spec: RunSpec) -> dict[str, int]:
    """Bytes of `shuffle_bytes` per source, by its weight at step 0."""
    weights = {name: ramp.at(0) for name, ramp in spec.mixture.weights.items()}
    largest = max(weights.values())  # relative to it: a sum of the largest floats is no float
    total = sum(weight / largest for weight in weights.values())
    return {name: int(spec.budgets.shuffle_bytes * (weights.get(name, 0.0) / largest) / total) for name in spec.sources}


def joined(failures: list[LoadmasterError]) -> LoadmasterError:
    """Several errors as one of the first one's class, a line each; what several sources share is told once."""
    failures = list({failure.message: failure for failure in reversed(failures)}.values())[::-1]
    if len(failures) == 1:
        return failures[0]
    faults = [{"message": failure.message, "field": failure.details.get("field")} for failure in failures]
    error = type(failures[0])("\n".join(failure.message for failure in failures), faults=faults)
    error.__cause__ = failures[0]
    return error


def _freeze(spec: RunSpec, name: str, shuffle_bytes: int, progress: FreezeProgress | None) -> SourceManifest:
    transform = build_transform(spec, name)
    manifest = freeze_source(
        name,
        spec.source_names.index(name),
        spec.sources[name],
        base_dir=Path.cwd(),
        shuffle_bytes=shuffle_bytes,
        fingerprint=transform.fingerprint,
        progress=partial(progress, name) if progress is not None else None,
    )
    refuse_fruitless(manifest, spec.sources[name], transform)
    if progress is not None:
        progress(name, len(manifest.shards), len(manifest.shards))
    return manifest
