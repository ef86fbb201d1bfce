"""`connect`: from a planner's address, or the path of a run spec, to a stream of batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.tracing import configure_tracing

from .environment import launched_as, tls_as
from .feed import BatchFeed, JoinOptions
from .remote import RemoteFeed
from .stream import Stream, checked_skip, with_state
from .tensors import Framework

EMBEDDED_GROUP = "loadmaster.embedded"


def connect(
    target: str,
    *,
    run: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    stream: str = "train",
    mesh: Mapping[str, int] | None = None,
    coords: Mapping[str, int] | None = None,
    resume: Mapping[str, Any] | None = None,
    replay: bool = True,
    skip: Sequence[int] | None = None,
    prefetch: int = 2,
    timeout_s: float = 120.0,
    framework: str = "auto",
    tls_ca: str | Path | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
) -> Stream:
    """Open this rank's stream of batches. Joins with the first `next()`, so it returns at once.

        with loadmaster.connect("http://127.0.0.1:8700", run="my-run") as stream:
            for batch in stream:
                ...

    It never touches torch.distributed: each rank calls it for itself.

    Args:
        target: `https://host:port` of a planner, `http://` on this machine alone; or the path of a run spec (.yaml,
            .yml), which then runs embedded, in this one process without services.
        run: Name of the run; may be left out where the planner has exactly one.
        rank: Global rank; by default the environment's RANK, else 0.
        world_size: Number of ranks; by default the environment's WORLD_SIZE, else 1.
        stream: `train`, or the name of an evaluation pass.
        mesh: Axis sizes that the trainer uses, such as {"dp": 4, "tp": 2}; refused where the run's spec differs.
        coords: This rank's coordinates; refused where they differ from those that the mesh gives it.
        resume: What `Stream.state_dict` gave: go on from there, on the same mesh or on another one.
        replay: Serve the steps that were bound before the interruption as they were planned then; False plans them
            anew, so that a revision of the run may change them.
        skip: Two steps (a, b): those in [a, b) are left out, their samples count as consumed. By default what the state
            says of an earlier skip; () leaves nothing out.
        prefetch: Steps fetched beyond the one that is consumed.
        timeout_s: Deadline of every wait; its error names rank, step and what is missing.
        framework: `torch`, `numpy`, or `auto`: torch where it is installed.
        tls_ca: PEM file of who signs the certificates of planner and constructors; by default LOADMASTER_TLS_CA, else
            whom the system trusts.
        tls_cert: PEM file of this rank's own certificate, where it must have one; by default LOADMASTER_TLS_CERT.
        tls_key: Its private key; by default LOADMASTER_TLS_KEY.

    Raises:
        BadRequestError: An argument is wrong; names it.
        ImportError: torch, or what embedded runs need, is not installed.
    """
    rank, world_size = launched_as(rank, world_size)
    if prefetch < 1:
        raise BadRequestError(f"prefetch must be at least 1, got {prefetch}")
    if timeout_s <= 0:
        raise BadRequestError(f"timeout_s must be positive, got {timeout_s}")
    if framework not in set(Framework):
        raise BadRequestError(f"framework must be one of {', '.join(Framework)}, got {framework!r}")
    options = JoinOptions(
        target=target,
        run=run,
        stream=stream,
        rank=rank,
        world_size=world_size,
        mesh=mesh or {},
        coords=coords or {},
        prefetch=prefetch,
        timeout_s=timeout_s,
        replay=replay,
        tls=tls_as(ca=tls_ca, cert=tls_cert, key=tls_key),
    )
    if resume is not None:
        options = with_state(options, resume)
    if skip is not None:
        options = dataclasses.replace(options, skip=checked_skip(skip, options.step))
    return Stream(options, open_feed=_feed_opener(target), framework=Framework(framework).resolve())


def _feed_opener(target: str) -> Any:
    if target.startswith(("http://", "https://")):
        configure_tracing("trainer")
        return RemoteFeed
    if target.endswith((".yaml", ".yml")):
        return _open_embedded
    raise BadRequestError(f"target must be https://host:port of a planner or the path of a .yaml spec, got {target!r}")


def _open_embedded(options: JoinOptions) -> BatchFeed:
    try:
        (entry,) = entry_points(group=EMBEDDED_GROUP, name="connect")
        opener = entry.load()
    except (ValueError, ImportError) as error:
        name = getattr(error, "name", None)
        raise ImportError(
            f'a run spec as target needs pip install "loadmaster[server]" ({error})', name=name
        ) from error
    feed: BatchFeed = opener(options.target, **options.as_arguments())
    return feed
