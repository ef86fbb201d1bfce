"""What changed of a stream since it was last looked at: the events of one topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from loadmaster_flight.wire.control import ActorView, RunView

from ..store import AuditRecord, GenerationRecord, Store, StreamKey
from ..store.steps import StepRepository
from .event_schemas import ActorsEvent, AuditEvent, ProgressEvent, RanksEvent, RunEvent, ScheduleEvent, SourcesEvent
from .overview import pace_of, step_waits, tokens_of
from .ranks import NOBODY, RankSnapshot
from .scene import STATES, Scene, behind, look, mean_waits, rank_states, rounded, significant
from .schemas import LiveModel
from .sources import SourceModel
from .stages import SILENT_ACTOR_S
from .step_log import StepLog
from .watch import LiveWatch

SLOW_TICKS = 4
"""Numbers that always move are told every so many ticks."""
MAX_AUDIT = 50
WAIT_CHANGE, LEAST_WAIT_S = 0.25, 0.005
"""A rank's mean wait is news when it moved by this part of what was told, and by so many seconds."""
Named = tuple[str, LiveModel]


class AuditFeed:
    """New lines of the audit log, of a run or of all."""

    def __init__(self, store: Store, run: str | None) -> None:
        self._store, self._run = store, run
        self._last = max((line.number for line in self._store.audit.read(run=run, limit=1)), default=0)

    def tick(self) -> Iterator[Named]:
        """Those since the tick before, oldest first."""
        lines = [line for line in self._store.audit.read(run=self._run, limit=MAX_AUDIT) if line.number > self._last]
        for line in reversed(lines):
            self._last = line.number
            yield "audit", _audit_event(line)


class RunsFeed:
    """The topic of all runs."""

    def __init__(self, store: Store, runs: Callable[[], list[RunView]]) -> None:
        self._runs, self._audit = runs, AuditFeed(store, None)
        self._known = {view.run: view for view in runs()}

    def tick(self, number: int) -> Iterator[Named]:
        """Runs that changed, and what was done."""
        if number % 2:
            return
        for view in self._runs():
            if self._known.get(view.run) != view:
                self._known[view.run] = view
                yield "run", run_event(view)
        yield from self._audit.tick()


class StreamFeed:
    """The topic of one stream of a run. One thread calls it.

    The first tick finds out how things are; each later one tells what is otherwise than it was told last.
    """

    def __init__(
        self,
        key: StreamKey,
        *,
        store: Store,
        steps: StepRepository,
        log: StepLog,
        watch: LiveWatch,
        sources: SourceModel,
        run_view: Callable[[str], RunView],
        waiting: Callable[[StreamKey, GenerationRecord | None], str],
        actors: Callable[[], list[ActorView]],
        window_s: float,
    ) -> None:
        self._key, self._store, self._steps, self._log, self._watch = key, store, steps, log, watch
        self._sources, self._run_view, self._waiting, self._actors = sources, run_view, waiting, actors
        self._window_s = window_s
        self._audit = AuditFeed(store, key.run)
        self._run: RunView | None = None
        self._progress: ProgressEvent | None = None
        self._waits: dict[int, tuple[int, float, float]] = {}
        self._ranks: dict[str, np.ndarray] = {}
        self._actor_rows: dict[str, tuple[object, ...]] | None = None
        self._source_rows: dict[str, tuple[object, ...]] | None = None
        self._schedule: ScheduleEvent | None = None

    def tick(self, number: int) -> Iterator[Named]:
        """The events since the tick before. `number` counts ticks from 0, which tells nothing."""
        for news in self._news(number):
            if number:
                yield news

    def _news(self, number: int) -> Iterator[Named]:
        is_slow = number % SLOW_TICKS == 0
        scene = look(self._store, self._log, self._watch, self._key, self._window_s)
        generation = scene.generation
        snapshot = self._watch.ranks.snapshot(generation.key, generation.world_size) if generation else NOBODY
        yield from self._run_news()
        yield from self._progress_news(scene, snapshot)
        yield from self._rank_news(scene, snapshot, with_waits=is_slow)
        yield from self._actor_news(with_loads=is_slow)
        if is_slow:
            yield from self._source_news(scene)
        if number % 2 == 0:
            yield from self._schedule_news()
            yield from self._audit.tick()

    def _run_news(self) -> Iterator[Named]:
        view = self._run_view(self._key.run)
        if view != self._run:
            self._run = view
            yield "run", run_event(view)

    def _progress_news(self, scene: Scene, snapshot: RankSnapshot) -> Iterator[Named]:
        generation = scene.generation
        rate = scene.tokens_per_s
        acknowledged = generation.acknowledged if generation else 0
        event = ProgressEvent(
            run=self._key.run,
            stream=self._key.stream,
            generation=generation.key.generation if generation else -1,
            state=generation.state.value if generation else "idle",
            acknowledged=acknowledged,
            bound=generation.bound if generation else 0,
            planned=generation.planned if generation else 0,
            tokens=tokens_of(scene),
            tokens_per_s=None if rate is None else round(rate, 1),
            **pace_of(scene, snapshot),
            window_s=scene.window_s,
            waiting_text=self._waiting(self._key, generation),
            waits=self._new_waits(snapshot, acknowledged),
        )
        if self._progress is None or _moved(self._progress, event):
            self._progress = event
            yield "progress", event

    def _new_waits(self, snapshot: RankSnapshot, acknowledged: int) -> list[tuple[int, float, float]]:
        told = step_waits(snapshot, acknowledged)
        rows = zip(told.step, told.num_ranks, told.max_s, told.mean_s, strict=True)
        known = {
            step: (num, longest, mean) for step, num, longest, mean in rows if longest is not None and mean is not None
        }
        fresh = [(step, row[1], row[2]) for step, row in known.items() if self._waits.get(step) != row]
        self._waits = known
        return fresh

    def _rank_news(self, scene: Scene, snapshot: RankSnapshot, *, with_waits: bool) -> Iterator[Named]:
        columns: dict[str, np.ndarray] = {"behind": behind(snapshot), "state": rank_states(scene, snapshot)}
        before = self._ranks
        if with_waits or "wait" not in before or len(before["wait"]) != len(columns["state"]):
            columns["wait"] = _news_of_waits(before.get("wait"), _two_digits(mean_waits(scene, snapshot)))
        else:
            columns["wait"] = before["wait"]
        self._ranks = columns
        if len(before.get("state", ())) != len(columns["state"]):
            changed_N = np.arange(len(columns["state"]))
        else:
            changed_N = np.flatnonzero(
                (before["behind"] != columns["behind"])
                | (before["state"] != columns["state"])
                | (_filled(before["wait"]) != _filled(columns["wait"]))
            )
        if len(changed_N):
            yield (
                "ranks",
                RanksEvent(
                    rank=changed_N.tolist(),
                    behind=columns["behind"][changed_N].tolist(),
                    state=[STATES[at] for at in columns["state"][changed_N].tolist()],
                    wait_s=rounded(columns["wait"][changed_N], 6),
                ),
            )

    def _actor_news(self, *, with_loads: bool) -> Iterator[Named]:
        before = self._actor_rows or {}
        rows = {
            actor.actor_id: self._actor_row(actor, before.get(actor.actor_id), with_loads=with_loads)
            for actor in self._actors()
        }
        changed = [name for name, row in rows.items() if before.get(name) != row]
        gone = sorted(before.keys() - rows.keys())
        self._actor_rows = rows
        if changed or gone:
            columns = _columns([(name, *rows[name]) for name in changed], 7)
            names = ("actor", "role", "address", "busy", "blocked", "idle", "state")
            yield "actors", ActorsEvent.model_validate(dict(zip(names, columns, strict=True)) | {"gone": gone})

    def _actor_row(
        self, actor: ActorView, before: tuple[object, ...] | None, *, with_loads: bool
    ) -> tuple[object, ...]:
        load = self._watch.loads.load(actor.actor_id) if with_loads or before is None else None
        loads: tuple[object, ...] = (None, None, None) if before is None else before[2:5]
        if load is not None:
            loads = tuple(round(part * 20) / 20 for part in (load.busy, load.blocked, load.idle))
        return (actor.role.value, actor.address, *loads, "silent" if actor.heartbeat_age_s > SILENT_ACTOR_S else "ok")

    def _source_news(self, scene: Scene) -> Iterator[Named]:
        rows: dict[str, tuple[object, ...]] = {
            row.name: (row.state, significant(row.rate), row.errors, row.retries)
            for row in self._sources.rows(scene, has_verdicts=False)
        }
        before = self._source_rows or {}
        self._source_rows = rows
        changed = [name for name, row in rows.items() if before.get(name) != row]
        if changed:
            columns = _columns([(name, *rows[name]) for name in changed], 5)
            names = ("name", "state", "rate", "errors", "retries")
            yield "sources", SourcesEvent.model_validate(dict(zip(names, columns, strict=True)))

    def _schedule_news(self) -> Iterator[Named]:
        heads = self._steps.schedule_heads(self._key.run)
        event = ScheduleEvent(
            run=self._key.run,
            revision=self._store.schedules.timeline(self._key.run).newest.number,
            scheduled=heads.waiting,
            drafts=heads.drafts,
            first_free=self._store.schedules.room(self._key.run).first_free,
        )
        before, self._schedule = self._schedule, event
        if before is None or before.model_copy(update={"first_free": event.first_free}) != event:
            yield "schedule", event


def run_event(view: RunView) -> RunEvent:
    """A run's state."""
    return RunEvent(run=view.run, state=view.state, reason=view.reason, revision=view.revision)


def _audit_event(line: AuditRecord) -> AuditEvent:
    return AuditEvent(
        number=line.number,
        at=line.at,
        author=line.author,
        action=line.action,
        run=line.run,
        revision=line.revision,
        message=line.message,
    )


def _moved(before: ProgressEvent, now: ProgressEvent) -> bool:
    """Whether there is news: that a window has grown by a tick is none."""
    return bool(now.waits) or before.model_copy(update={"window_s": now.window_s, "waits": now.waits}) != now


def _two_digits(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (1 - np.floor(np.log10(np.maximum(np.abs(values), 1e-6))))
    return np.asarray(np.round(np.round(values * scale) / scale, 6))


def _news_of_waits(told_W: np.ndarray | None, now_W: np.ndarray) -> np.ndarray:
    """What is to be told: a wait that moved little is told as it was, or all ranks would change all the time."""
    if told_W is None or len(told_W) != len(now_W):
        return now_W
    told, now = _filled(told_W), _filled(now_W)
    is_news = (np.abs(now - told) > np.maximum(LEAST_WAIT_S, WAIT_CHANGE * np.abs(told))) | ((told < 0) != (now < 0))
    return np.where(is_news, now_W, told_W)


def _filled(values: np.ndarray) -> np.ndarray:
    """-1 for nan, so that unknown equals unknown."""
    return np.where(np.isnan(values), -1.0, values)


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [[row[i] for row in rows] for i in range(width)]
