"""Where two plan logs part, and what differs there.

# N = pieces
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loadmaster_flight.wire.ledger import DiffReport
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, WHOLE, StepPlan
from loadmaster_flight.wire.tls import Tls

from ..store import Definition, PlanRecord, Store, StreamKey
from .log import LineageLog, decoded
from .naming import Asked, SampleNames
from .ranges import Place

MAX_SAMPLES = 20
"""Samples that are named of a step."""
PLACEMENT_KEYS = ("mesh", "strategy", "model", "budgets", "run")
"""Parts of a spec that never change what a step holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two logs. `generation`: its lineage; None: the newest."""

    key: StreamKey
    generation: int | None = None

    def __str__(self) -> str:
        return str(self.key) if self.generation is None else f"{self.key} generation {self.generation}"


def differ(store: Store, a: Side, b: Side, *, tls: Tls | None = None) -> DiffReport:
    """Compare two logs step by step, up to the first step that differs.

    Raises:
        NotFoundError: One of them is not there.
    """
    logs = LineageLog(store, a.key, a.generation), LineageLog(store, b.key, b.generation)
    common = min(log.planned for log in logs)
    for record_a, record_b in _pairs(*logs, common):
        masked = [store.verdicts.masked(side.key, record_a.step, record_a.step + 1) for side in (a, b)]
        if record_a.digest != record_b.digest or masked[0] != masked[1]:
            meshes = [log.step(record_a.step)[0].mesh for log in logs]
            report = _Parting(store, a, b, common, tls).report(record_a, record_b, has_masks=masked[0] != masked[1])
            return replace(report, reasons=[*report.reasons, *_of_mesh(*meshes)])
    return DiffReport(
        a=str(a),
        b=str(b),
        common=common,
        first_step=-1,
        kind="nothing",
        reasons=_causes(store, a, b),
    )


def _pairs(a: LineageLog, b: LineageLog, common: int) -> Iterator[tuple[PlanRecord, PlanRecord]]:
    """The records of both, step by step; a step that either lacks is passed over."""
    theirs = (record for window in b.windows(0, common) for record in window.records)
    record_b = next(theirs, None)
    for window in a.windows(0, common):
        for record_a in window.records:
            while record_b is not None and record_b.step < record_a.step:
                record_b = next(theirs, None)
            if record_b is None:
                return
            if record_b.step == record_a.step:
                yield record_a, record_b


class _Parting:
    """The first step that differs."""

    def __init__(self, store: Store, a: Side, b: Side, common: int, tls: Tls | None) -> None:
        self._store, self._a, self._b, self._common = store, a, b, common
        self._names = SampleNames(store, a.key.run, tls=tls), SampleNames(store, b.key.run, tls=tls)

    def report(self, record_a: PlanRecord, record_b: PlanRecord, *, has_masks: bool) -> DiffReport:
        plan_a, plan_b = decoded(record_a), decoded(record_b)
        names_a, names_b = self._names[0].source_names, self._names[1].source_names
        pieces_a, pieces_b = _pieces(plan_a, names_a), _pieces(plan_b, names_b)
        only_a = [i for piece, i in pieces_a.items() if piece not in pieces_b]
        only_b = [i for piece, i in pieces_b.items() if piece not in pieces_a]
        moved = [i for piece, i in pieces_a.items() if _is_moved(plan_a, i, plan_b, pieces_b.get(piece))]
        has_units = not np.array_equal(plan_a.units.rank_U, plan_b.units.rank_U)
        kind = _kind(plan_a, plan_b, has_other_pieces=bool(only_a or only_b), has_masks=has_masks)
        reasons = _causes(self._store, self._a, self._b)
        if kind == "placement" and has_units:
            reasons = [*reasons, "images are encoded by other ranks"]
        return DiffReport(
            a=str(self._a),
            b=str(self._b),
            common=self._common,
            first_step=record_a.step,
            kind=kind,
            reasons=[*_of_step(plan_a, plan_b), *reasons],
            only_a=self._named(0, plan_a, only_a),
            only_b=self._named(1, plan_b, only_b),
            num_only_a=len(only_a),
            num_only_b=len(only_b),
            moved=self._named(0, plan_a, moved),
            num_moved=len(moved),
        )

    def _named(self, side: int, plan: StepPlan, pieces: list[int]) -> list[str]:
        p = plan.pieces
        asked: list[Asked] = [
            (Place(*(int(getattr(p, name)[i]) for name in Place._fields)), int(p.pos[i]), int(p.first_token[i]))
            for i in pieces[:MAX_SAMPLES]
        ]
        return self._names[side].of(asked)


def _pieces(plan: StepPlan, names: list[str]) -> dict[tuple[Any, ...], int]:
    """Pieces by everything but their bin, with their index; sources by name, for two runs may number them apart."""
    columns = [getattr(plan.pieces, name).tolist() for name in PIECE_COLUMNS if name not in ("bin", "source")]
    sources = [names[source] for source in plan.pieces.source.tolist()]
    return {piece: i for i, piece in enumerate(zip(sources, *columns, strict=True))}


def _is_moved(plan_a: StepPlan, i: int, plan_b: StepPlan, j: int | None) -> bool:
    return j is not None and int(plan_a.pieces.bin[i]) != int(plan_b.pieces.bin[j])


def _kind(a: StepPlan, b: StepPlan, *, has_other_pieces: bool, has_masks: bool) -> str:
    if (a.num_bins, a.seq_len) != (b.num_bins, b.seq_len):
        return "batch"
    if a.revision != b.revision:
        return "revision"
    if not np.array_equal(a.weights_S, b.weights_S):
        return "mixture"
    if has_other_pieces or a.is_final != b.is_final:
        return "membership"
    return "verdict" if has_masks else "placement"


def _of_step(a: StepPlan, b: StepPlan) -> list[str]:
    """What of the step itself is another."""
    said = []
    for name in ("num_bins", "seq_len", "revision", "is_final", "num_tokens"):
        if getattr(a, name) != getattr(b, name):
            said.append(f"{name} of the step: {getattr(a, name)} and {getattr(b, name)}")
    if not np.array_equal(a.weights_S, b.weights_S):
        said.append("the shares in force differ")
    cut = [int((plan.pieces.num_tokens != WHOLE).sum()) for plan in (a, b)]
    return [*said, f"cut pieces: {cut[0]} and {cut[1]}"] if cut[0] != cut[1] else said


def _causes(store: Store, a: Side, b: Side) -> list[str]:
    """What the two rest on that is not the same."""
    said = []
    if a.key.run != b.key.run:
        said += _spec_differences(store.runs.definition(a.key.run), store.runs.definition(b.key.run))
        said += _verdict_differences(store, a, b)
    if a.key.stream != b.key.stream:
        said.append(f"stream: {a.key.stream} and {b.key.stream}")
    return said


def _of_mesh(a: dict[str, int], b: dict[str, int]) -> list[str]:
    return [f"mesh {axis}: {a.get(axis, 1)} and {b.get(axis, 1)}" for axis in a | b if a.get(axis, 1) != b.get(axis, 1)]


def _spec_differences(a: Definition, b: Definition) -> list[str]:
    trees = [{k: v for k, v in d.spec.to_tree().items() if k not in PLACEMENT_KEYS} for d in (a, b)]
    said = [f"{path}: {left!r} and {right!r}" for path, left, right in _unlike(trees[0], trees[1], "")]
    manifests = [{m.name: m for m in d.manifests} for d in (a, b)]
    for name in sorted(manifests[0].keys() & manifests[1].keys()):
        left, right = manifests[0][name], manifests[1][name]
        for field in ("lanes", "unit_kind", "fingerprint", "shards", "excluded"):
            if getattr(left, field) != getattr(right, field):
                said.append(f"source {name}: {field} differ")
    return said


def _unlike(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Leaves of two trees that are not equal, with their path."""
    if isinstance(a, dict) and isinstance(b, dict):
        for name in sorted({*a, *b}):
            yield from _unlike(a.get(name), b.get(name), f"{path}.{name}" if path else str(name))
    elif a != b:
        yield path, a, b


def _verdict_differences(store: Store, a: Side, b: Side) -> list[str]:
    counts = [sum(map(len, store.verdicts.left_out_by_block(side.key).values())) for side in (a, b)]
    return [f"rows left out: {counts[0]} and {counts[1]}"] if counts[0] != counts[1] else []
