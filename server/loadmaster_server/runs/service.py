"""Runs: created once, frozen, looked at, and let go on after a pause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from pydantic import ValidationError

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.control import (
    AddSourceRequest,
    CreateRunRequest,
    GenerationView,
    LeftOutView,
    RunView,
    SourceView,
    StreamView,
    VerdictReport,
)
from loadmaster_flight.wire.errors import BadRequestError, ConflictError, NotFoundError, SpecError
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.waiting import MAX_NAMED

from ..faults import describe_faults
from ..planning.rehearsal import rehearse
from ..planning.rules import rules_of
from ..store import (
    ACTORS,
    Definition,
    GenerationKey,
    GenerationRecord,
    GenerationState,
    SourceCounts,
    Store,
    StreamKey,
    VerdictKind,
    VerdictRecord,
)
from .adding import check_same_source, checked_source, with_source
from .comparison import name_differences
from .mesh import check_spec
from .presence import RankWatch

IDLE = "idle"
JOINING = "joining"
_LOUDEST_FIRST = (
    GenerationState.FAILED,
    GenerationState.PAUSED,
    GenerationState.FENCED,
    GenerationState.OPEN,
    GenerationState.ENDED,
)


class RunService:
    """Creates runs and says how they are. Any thread may call it.

    Args:
        store: The truth.
        waiting_for: Ranks that a stream's rendezvous still waits for; empty where none is under way.
        on_create: Called with every run that is created, before any rank can join it.
        ranks: How the ranks of open generations are.
    """

    def __init__(
        self,
        store: Store,
        waiting_for: Callable[[StreamKey], list[int]],
        on_create: Callable[[RunSpec], None] = lambda spec: None,
        ranks: RankWatch | None = None,
    ) -> None:
        self._store, self._waiting_for, self._on_create = store, waiting_for, on_create
        self._ranks = ranks or RankWatch()

    def create(self, request: CreateRunRequest) -> RunView:
        """Freeze a run; the same spec and manifests again change nothing.

        Raises:
            SpecError: The spec is wrong; names fields. Or its strategy is.
            MeshError: No set of ranks can start on its mesh; names rule and numbers.
            BadRequestError: The manifests are not those of the spec's sources.
            ConflictError: The name belongs to a run with another spec or other sources; names what differs.
        """
        definition = _parse(request)
        run = definition.spec.run
        if not self._store.runs.create(definition):
            known = self._store.runs.definition(run)
            _check_same(known.first(known.num_created), definition)
            self._store.runs.activate(run)
        self._store.bulletin.post(ACTORS)
        self._on_create(definition.spec)
        return self.view(run)

    def add_source(self, run: str, request: AddSourceRequest, author: str) -> SourceView:
        """Freeze another source of a run. Loaders open it; the first revision that names it has it drawn from.

        Raises:
            SpecError: The run cannot have it; names the field.
            BadRequestError: The manifest is not of this source.
            ConflictError: The run has another source of that name.
        """
        definition = self._store.runs.definition(run)
        while request.name not in definition.spec.sources:
            manifest = checked_source(definition, request)
            tree = with_source(definition, request).to_tree()["sources"][request.name]
            is_added = self._store.runs.add_source(run, request.name, tree, manifest, by=author)
            definition = self._store.runs.definition(run)
            if is_added:
                self._store.bulletin.post(ACTORS)
        check_same_source(definition, request)
        return next(view for view in self.sources(run) if view.source == request.name)

    def definition(self, run: str) -> CreateRunRequest:
        """The frozen spec and manifests."""
        definition = self._store.runs.definition(run)
        return CreateRunRequest(spec=definition.spec.to_tree(), manifests=_manifest_trees(definition))

    def views(self) -> list[RunView]:
        """All runs, by name."""
        return [self.view(run) for run in self._store.runs.names()]

    def view(self, run: str) -> RunView:
        """One run: its state is that of its stream that needs attention most.

        A stream whose generation is over because a rank joined again is joining.
        """
        spec = self._store.runs.definition(run).spec
        newest = [self._store.generations.newest(StreamKey(run=run, stream=name)) for name in spec.stream_names]
        found = sorted((g for g in newest if g is not None), key=lambda g: _LOUDEST_FIRST.index(g.state))
        state, reason = (_state_of(found[0]), found[0].reason) if found else (IDLE, "")
        revision = self._store.runs.revision(run)
        return RunView(run=run, state=state, reason=reason, revision=revision, streams=spec.stream_names)

    def generations(self, run: str) -> list[GenerationView]:
        """Every life of the run's streams, by stream: what it went on from, where, on which mesh, and how."""
        self._store.runs.definition(run)
        return [_generation_view(generation) for generation in self._store.generations.of_run(run)]

    def sources(self, run: str) -> list[SourceView]:
        """The sources of a run, in ordinal order, with the counts that are known by now."""
        manifests = self._store.runs.definition(run).manifests
        counts = self._store.runs.counts(run)  # may know sources that were added a moment ago: they come last
        return [_source_view(*pair) for pair in zip(manifests, counts, strict=False)]

    def resume(self, run: str, author: str) -> RunView:
        """Let what is paused or failed of a run go on; a run that is not stopped is left alone."""
        self._store.runs.definition(run)
        for key in self._store.generations.resume(run, by=author):
            self._store.bulletin.post(str(key.stream_key))
        return self.view(run)

    def stream_view(self, key: StreamKey) -> StreamView:
        """Where a stream is, and whom it waits for."""
        definition = self._store.runs.definition(key.run)
        generation = self._store.generations.newest(key)
        waiting_for = self._waiting_for(key)
        tokens, weights = self._mixture(definition.spec, key.stream, generation)
        return StreamView(
            run=key.run,
            stream=key.stream,
            generation=generation.key.generation if generation else -1,
            state=_state_of(generation) if generation else (JOINING if waiting_for else IDLE),
            reason=generation.reason if generation else "",
            planned=generation.planned if generation else 0,
            bound=generation.bound if generation else 0,
            acknowledged=generation.acknowledged if generation else 0,
            is_planned_to_end=generation is not None and generation.end_step is not None,
            waiting_for=waiting_for,
            source_names=definition.spec.source_names,
            source_tokens=tokens,
            source_weights=weights,
            ranks=self._ranks.views(generation.key) if _is_open(generation) else [],
            waiting_text=self._waiting_text(waiting_for, generation),
        )

    def waiting_text(self, key: StreamKey, generation: GenerationRecord | None) -> str:
        """Whom a stream waits for, or why it stands still; `generation` is its newest."""
        return self._waiting_text(self._waiting_for(key), generation) or (generation.reason if generation else "")

    def _waiting_text(self, waiting_for: list[int], generation: GenerationRecord | None) -> str:
        to_join = f"{_ranks_text(waiting_for)} to join" if waiting_for else ""
        behind = self._ranks.text(generation.key) if _is_open(generation) else ""
        told = "; ".join(filter(None, [to_join, behind]))
        return f"waiting for {told}" if told else ""

    def left_out(self, key: StreamKey) -> list[LeftOutView]:
        """What a stream does not train on, and why, by source and verdict."""
        names = self._store.runs.definition(key.run).spec.source_names
        found = self._store.verdicts.left_out(key)
        return [_left_out_view(names[verdict.source], verdict, count) for verdict, count in found]

    def report_verdict(self, run: str, report: VerdictReport) -> None:
        """Journal that a planned sample is served masked.

        Raises:
            NotFoundError: There is no such generation or source.
            BadRequestError: The step is not planned.
        """
        definition = self._store.runs.definition(run)
        key = GenerationKey(run=run, stream=report.stream, generation=report.generation)
        generation = self._store.generations.unfenced(key)
        if not 0 <= report.source < len(definition.manifests):
            raise NotFoundError(f"source must be in [0, {len(definition.manifests)}), got {report.source}")
        if not 0 <= report.step < generation.planned:
            raise BadRequestError(f"step must be planned, below {generation.planned}, got {report.step}")
        self._store.plans.journal(run, [_masked(report)])

    def _mixture(
        self, spec: RunSpec, stream: str, generation: GenerationRecord | None
    ) -> tuple[list[int], list[float]]:
        """Tokens placed in bound steps since the beginning, and the shares in force, per source."""
        summary: dict[str, Any] | None = None
        if generation is not None and generation.bound > 0:
            summary = self._store.plans.lineage_summary(generation, generation.bound - 1)
        num = len(spec.source_names)
        if summary is None:
            return [0] * num, _shares_at_start(spec, stream)
        tokens, weights = summary["total_tokens"], [weight / (1 << 30) for weight in summary["weights"]]
        later = num - len(tokens)  # sources that were added since then
        return [*tokens, *[0] * later], [*weights, *[0.0] * later]


def _state_of(generation: GenerationRecord) -> str:
    """A stream's newest generation is fenced only while its ranks have yet to join the next one."""
    return JOINING if generation.state is GenerationState.FENCED else generation.state.value


def _is_open(generation: GenerationRecord | None) -> TypeGuard[GenerationRecord]:
    return generation is not None and generation.state is GenerationState.OPEN


def _ranks_text(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:MAX_NAMED])) + (", ..." if len(ranks) > MAX_NAMED else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _shares_at_start(spec: RunSpec, stream: str) -> list[float]:
    weights_S = [0.0 if ramp is None else ramp.at(0) for ramp in rules_of(spec, stream).weights]
    return [weight / (sum(weights_S) or 1.0) for weight in weights_S]


def _parse(request: CreateRunRequest) -> Definition:
    try:
        spec = RunSpec.model_validate(request.spec)
    except ValidationError as error:
        raise SpecError(f"spec: {describe_faults(error.errors())}") from error
    check_spec(spec)
    rehearse(spec)
    manifests = tuple(_parse_manifest(i, tree) for i, tree in enumerate(request.manifests))
    names = [manifest.name for manifest in manifests]
    if names != spec.source_names:
        raise BadRequestError(f"manifests must be those of the sources {spec.source_names}, in order, got {names}")
    for i, manifest in enumerate(manifests):
        if manifest.ordinal != i:
            raise BadRequestError(f"manifests[{i}].ordinal must be {i}, got {manifest.ordinal}")
    return Definition(spec=spec, manifests=manifests)


def _parse_manifest(index: int, tree: dict[str, Any]) -> SourceManifest:
    try:
        return SourceManifest.model_validate(tree)
    except ValidationError as error:
        raise BadRequestError(f"manifests[{index}]: {describe_faults(error.errors())}") from error


def _manifest_trees(definition: Definition) -> list[dict[str, Any]]:
    return [manifest.model_dump(mode="json") for manifest in definition.manifests]


def _check_same(before: Definition, after: Definition) -> None:
    trees = [
        {"spec": d.spec.to_tree(), "manifests": {m["name"]: m for m in _manifest_trees(d)}} for d in (before, after)
    ]
    found = name_differences(trees[0], trees[1])
    if before.spec.source_names != after.spec.source_names and not found:
        found = f"order of sources: {before.spec.source_names} -> {after.spec.source_names}"
    if found:
        raise ConflictError(f"run {before.spec.run!r} is frozen and differs: {found}. Give the new run another name")


def _source_view(manifest: SourceManifest, counts: SourceCounts) -> SourceView:
    return SourceView(
        source=manifest.name,
        format=manifest.format.value,
        shards=len(manifest.shards),
        lanes=manifest.lanes,
        size_bytes=sum(shard.size_bytes for shard in manifest.shards),
        num_rows=counts.num_rows,
        epoch_samples=counts.epoch_samples,
        epoch_tokens=counts.epoch_tokens,
    )


def _generation_view(generation: GenerationRecord) -> GenerationView:
    return GenerationView(
        stream=generation.key.stream,
        generation=generation.key.generation,
        parent=generation.parent,
        first_step=generation.first_step,
        mesh=generation.mesh,
        world_size=generation.world_size,
        state=generation.state.value,
        reason=generation.reason,
        planned=generation.planned,
        bound=generation.bound,
        acknowledged=generation.acknowledged,
        replay_until=generation.replay_until,
        skip=generation.skip.as_list(),
        held_from=generation.held_from,
        end_step=generation.end_step,
        opened_at=generation.opened_at,
    )


def _left_out_view(source: str, last: VerdictRecord, count: int) -> LeftOutView:
    is_masked = last.kind is VerdictKind.MASKED
    verdict = VerdictKind.MASKED.value if is_masked else Verdict(last.verdict).name.lower()
    return LeftOutView(source=source, verdict=verdict, count=count, last_reason=last.reason)


def _masked(report: VerdictReport) -> VerdictRecord:
    return VerdictRecord(
        kind=VerdictKind.MASKED,
        stream=report.stream,
        step=report.step,
        source=report.source,
        epoch=report.epoch,
        shard=report.shard,
        block=report.block,
        row=report.row,
        verdict=Verdict.BAD,
        reason=report.reason,
    )
