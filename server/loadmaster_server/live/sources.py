"""How each source is: what it should give, what it gives, how it is read, what is wrong with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.schemas import Verdict

from ..planning.rules import rules_of
from ..store import SourceCounts, Store, StreamKey, VerdictKind
from .scene import Scene, look
from .schemas import SourceLine, SourceRow, SourceState, SourcesView, VerdictCounts
from .source_board import SourceReads
from .step_log import StepLog, StepNumbers
from .watch import LiveWatch

MAX_ROWS = 500
STATES = ("failing", "retrying", "unserved", "exhausted", "ok", "off", "retired")
"""Worst first."""
NO_VERDICTS = VerdictCounts(bad=0, skipped=0, over_long=0, masked=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceQuery:
    """Which rows: of this state, whose name holds `text`, by name after `after`."""

    state: str = ""
    text: str = ""
    after: str = ""
    limit: int = 200

    def __post_init__(self) -> None:
        if self.state and self.state not in STATES:
            raise BadRequestError(f"state must be one of {list(STATES)}, got {self.state!r}")
        if not 1 <= self.limit <= MAX_ROWS:
            raise BadRequestError(f"limit must be in [1, {MAX_ROWS}], got {self.limit}")


class SourceModel:
    """Reads sources. Any thread may call it."""

    def __init__(self, store: Store, log: StepLog, watch: LiveWatch) -> None:
        self._store, self._log, self._watch = store, log, watch

    def read(self, key: StreamKey, query: SourceQuery, window_s: float) -> SourcesView:
        """A page of sources.

        Raises:
            NotFoundError: No such run or stream.
        """
        scene = look(self._store, self._log, self._watch, key, window_s)
        rows = self.rows(scene)
        found = [row for row in rows if query.text.lower() in row.name.lower()]
        found = sorted((row for row in found if not query.state or row.state == query.state), key=lambda row: row.name)
        page = [row for row in found if row.name > query.after][: query.limit]
        is_last = not page or page[-1].name == found[-1].name
        return SourcesView(
            **scene.place,
            rows=page,
            next_after=None if is_last else page[-1].name,
            total=len(found),
            counts=dict(Counter(row.state for row in rows)),
            window_s=scene.window_s,
        )

    def rows(self, scene: Scene, *, has_verdicts: bool = True) -> list[SourceRow]:
        """All of them, in ordinal order; without verdicts the journal is not read."""
        key, names = scene.key, scene.definition.spec.source_names
        verdicts, counts = self._verdicts(key) if has_verdicts else {}, self._store.runs.counts(key.run)
        loaders = _loaders(self._store, key.run)
        reads = self._watch.sources.reads(key.run)
        newest = self._newest(scene)
        step = newest.step if newest else 0
        wanted, retired = _wanted(scene, step), set(scene.timeline.at(step).schedule.retired)
        return [
            _row(
                name,
                weight=_at(newest.weights_S if newest else None, i) or 0.0,
                total=int(_at(newest.total_tokens_S, i) or 0) if newest else None,
                all_tokens=int(newest.total_tokens_S.sum()) if newest else 0,
                rate=_at(scene.rates_S, i),
                reads=reads.get(i),
                counts=counts[i],
                verdicts=verdicts.get(i, NO_VERDICTS),
                loader=loaders.get(i, ""),
                is_retired=name in retired,
                is_wanted=name in wanted,
            )
            for i, name in enumerate(names)
        ]

    def _newest(self, scene: Scene) -> StepNumbers | None:
        """The last acknowledged step."""
        return scene.numbers[-1] if scene.numbers else None

    def _verdicts(self, key: StreamKey) -> dict[int, VerdictCounts]:
        found: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(VerdictCounts.model_fields, 0))
        for last, count in self._store.verdicts.left_out(key):
            if last.kind is VerdictKind.MEASURED:
                name = "bad" if last.verdict == Verdict.BAD else "skipped"
            else:
                name = last.kind.value
            found[last.source][name] += count
        return {source: VerdictCounts(**counts) for source, counts in found.items()}


def unhealthiest(rows: Iterable[SourceRow], limit: int = 5) -> list[SourceLine]:
    """Those that something is wrong with, worst first."""
    ill = [row for row in rows if row.state in STATES[:3] or row.errors or row.retries or row.verdicts.bad]
    ill.sort(key=lambda row: (STATES.index(row.state), -(row.errors or 0), -row.verdicts.bad, -(row.retries or 0)))
    return [
        SourceLine(
            source=row.name,
            state=row.state,
            errors=row.errors or 0,
            retries=row.retries or 0,
            bad=row.verdicts.bad,
            last_error=row.last_error[:200],
        )
        for row in ill[:limit]
    ]


def _row(
    name: str,
    *,
    weight: float,
    total: int | None,
    all_tokens: int,
    rate: float | None,
    reads: SourceReads | None,
    counts: SourceCounts,
    verdicts: VerdictCounts,
    loader: str,
    is_retired: bool,
    is_wanted: bool,
) -> SourceRow:
    epochs = total / counts.epoch_tokens if total is not None and counts.epoch_tokens else None
    return SourceRow(
        name=name,
        state=_state(reads, loader, is_retired=is_retired, is_wanted=is_wanted, is_drawn=weight > 0 or total is None),
        weight=round(weight, 6),
        share=round(total / all_tokens, 6) if total is not None and all_tokens else None,
        rows=counts.epoch_rows if counts.epoch_rows is not None else counts.num_rows,
        epochs=None if epochs is None else round(epochs, 4),
        tokens=total,
        rate=None if rate is None else round(rate, 1),
        reads=reads.reads if reads else None,
        read_p50_ms=_ms(reads.p50_ms if reads else None),
        read_p99_ms=_ms(reads.p99_ms if reads else None),
        errors=reads.errors if reads else None,
        retries=reads.retries if reads else None,
        verdicts=verdicts,
        last_error=reads.last_error if reads else "",
        last_error_s=None if reads is None or reads.last_error_s is None else round(reads.last_error_s, 1),
        loader=loader,
    )


def _state(reads: SourceReads | None, loader: str, *, is_retired: bool, is_wanted: bool, is_drawn: bool) -> SourceState:
    if is_retired:
        return "retired"
    if not is_wanted:
        return "off"
    if not is_drawn:  # the schedule gives it a share, the plan none: it holds nothing more
        return "exhausted"
    if reads is not None and reads.is_failing:
        return "failing"
    if not loader:
        return "unserved"
    return "retrying" if reads is not None and reads.is_retrying else "ok"


def _loaders(store: Store, run: str) -> Mapping[int, str]:
    """Source -> who owns its partitions."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    for route in store.actors.routes(run):
        for source, _, _ in route.partitions:
            found[source][route.address] = None
    return {source: ", ".join(addresses) for source, addresses in found.items()}


def _wanted(scene: Scene, step: int) -> set[str]:
    """Sources to which the schedule gives a share at a step."""
    spec = scene.definition.spec
    if scene.key.stream != TRAIN:
        rules = zip(spec.source_names, rules_of(spec, scene.key.stream).weights, strict=True)
        return {name for name, ramp in rules if ramp is not None and ramp.at(step) > 0}
    active = scene.timeline.at(step).schedule.live_weights()
    return {name for name, ramp in active.items() if ramp.at(step) > 0}


def _at(values: np.ndarray | None, i: int) -> float | None:
    return None if values is None or i >= len(values) else float(values[i])


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
