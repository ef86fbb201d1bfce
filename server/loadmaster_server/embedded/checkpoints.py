"""Planner states of embedded runs on disk, so that a run goes on where it was without planning from the beginning."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from loadmaster_flight.spec import RunSpec, SourceManifest

from ..planning.planner import PlannerState

EVERY_STEPS = 8
KEEP = 64


class CheckpointFolder:
    """States of one stream of one run, one file a base step. A state does not depend on rank or mesh, so all ranks of
    a job may share the folder: they write equal bytes.

    Args:
        root: The state directory.
    """

    def __init__(self, root: Path, spec: RunSpec, manifests: list[SourceManifest], stream: str) -> None:
        self._folder = root / "embedded" / spec.run / _fingerprint(spec, manifests) / stream

    def offer(self, state: PlannerState) -> None:
        """Keep the state where its step is a base; the oldest beyond KEEP are dropped (resuming plans further then)."""
        if state.step % EVERY_STEPS:
            return
        path = self._folder / f"{state.step:012}.state"
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(state.to_bytes())
        part.replace(path)
        for old in self._bases()[:-KEEP]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()

    def newest(self, *, at_most: int) -> PlannerState | None:
        """The newest state kept at or before a step."""
        found = [path for path in self._bases() if int(path.stem) <= at_most]
        return PlannerState.from_bytes(found[-1].read_bytes()) if found else None

    def _bases(self) -> list[Path]:
        return sorted(self._folder.glob("*.state"))


def _fingerprint(spec: RunSpec, manifests: list[SourceManifest]) -> str:
    """Changes with everything that decides a step's content; placement and the budgets do not."""
    tree = spec.to_tree() | dict.fromkeys(("mesh", "budgets", "strategy", "model"))
    frozen = [manifest.model_dump(mode="json") for manifest in manifests]
    return hashlib.sha256(json.dumps([tree, frozen], sort_keys=True).encode()).hexdigest()[:16]
