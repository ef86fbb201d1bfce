"""The graph of a planned step for people: source -> loader partition -> dp rank, aggregated from the plan."""

from __future__ import annotations

from dataclasses import dataclass

from loadmaster_flight.wire.errors import NotFoundError

from ..store import Definition, GenerationRecord, Store, StreamKey
from .drawing import Drawing, GraphEdge, GraphNode
from .restoring import Span, lineage_spans

DELIVERED, PLANNED = "delivered", "planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """A step as it was planned, in the trained lineage of its stream. `masked`: pieces served without loss."""

    run: str
    stream: str
    generation: int
    step: int
    state: str
    strategy: str
    method: str
    masked: int
    nodes: list[GraphNode]
    edges: list[GraphEdge]


class GraphService:
    """Derives graphs from the plan log. Any thread may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, key: StreamKey, step: int) -> StepGraph:
        """The graph of a step.

        Raises:
            NotFoundError: No such run or stream, or the step is not planned.
        """
        definition = self._store.runs.definition(key.run)
        newest = self._store.generations.newest(key)
        span = None if newest is None else _span_of(self._store.generations.lineage(newest.key), step)
        record = next(iter(self._store.plans.read(span.key, step, step + 1)), None) if span else None
        if newest is None or span is None or record is None:
            raise NotFoundError(f"step {step} of {key} is not planned")
        definition = definition.first(len(record.summary["source_tokens"]))
        drawing = Drawing(definition, span, record, self._owners(definition), self._constructors(newest))
        return StepGraph(
            run=key.run,
            stream=key.stream,
            generation=span.key.generation,
            step=step,
            state=DELIVERED if step < newest.acknowledged else PLANNED,
            strategy=definition.spec.strategy,
            method=str(drawing.kept.get("method", "")),
            masked=self._store.plans.num_masked(key, step),
            nodes=list(drawing.nodes()),
            edges=list(drawing.edges()),
        )

    def _owners(self, definition: Definition) -> list[dict[int, tuple[int, str]]]:
        run, sources = definition.spec.run, range(len(definition.manifests))
        return [self._store.actors.partition_owners(run, source) for source in sources]

    def _constructors(self, generation: GenerationRecord) -> dict[int, str]:
        return self._store.actors.constructors(generation.key)


def _span_of(lineage: list[GenerationRecord], step: int) -> Span | None:
    return next((span for span in lineage_spans(lineage) if span.first <= step < span.last), None)
