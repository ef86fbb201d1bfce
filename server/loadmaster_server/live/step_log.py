"""The numbers of logged steps, small enough to be kept: what a summary says, decoded once.

# S = sources, R = dp ranks, or groups of neighbouring ones
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..planning.aggregate import RANK_UNIT, rank_groups
from ..planning.fair import ONE
from ..planning.origins import unpacked
from ..plans.restoring import Span, lineage_spans
from ..store import GenerationKey, GenerationRecord, Store
from ..store.steps import StepRepository, StepSummary

Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]
CAPACITY_STEPS = 1024
"""Of all runs together; 306 sources on 4,096 ranks take about 40 kB a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNumbers:
    """One step of the trained lineage.

    Attributes:
        capacity: Tokens that it could hold; None for steps that were planned before this was kept. So aligned_tokens.
        weights_S: Shape (S,), float32, shares in force.
        source_tokens_S, total_tokens_S: Shape (S,), int64, of this step and since step 0.
        credit_S: Shape (S,), float32, tokens owed after the step's draw; nan where the step does not keep them.
        cost_R: Shape (R,), float32, over the mean; empty where the step keeps none.
        tokens_R: Shape (R,), int64.
        num_ranks: dp ranks; more than R where neighbours were put together.
    """

    step: int
    revision: int
    generation: int
    digest: str
    num_tokens: int
    capacity: int | None
    aligned_tokens: int | None
    weights_S: Float32Array
    source_tokens_S: Int64Array
    total_tokens_S: Int64Array
    credit_S: Float32Array
    cost_R: Float32Array
    tokens_R: Int64Array
    num_ranks: int

    @property
    def is_grouped(self) -> bool:
        """Whether `cost_R` and `tokens_R` are of groups of ranks."""
        return len(self.cost_R) < self.num_ranks

    @property
    def fill(self) -> float | None:
        """Tokens over what the step could hold."""
        return self.num_tokens / self.capacity if self.capacity else None

    @property
    def skew(self) -> float | None:
        """Cost of the dearest dp rank over the mean; None where it is not known by rank."""
        return float(self.cost_R.max()) if len(self.cost_R) and not self.is_grouped else None

    def first_ranks(self) -> Int64Array:
        """First dp rank of each entry of `cost_R`, (R,)."""
        groups = np.arange(self.num_ranks) * len(self.cost_R) // self.num_ranks
        return np.searchsorted(groups, np.arange(len(self.cost_R)))


class StepLog:
    """Reads steps of a stream's trained lineage. Any thread may use it.

    Args:
        store: Has the lineages.
        steps: Has the summaries.
    """

    def __init__(self, store: Store, steps: StepRepository) -> None:
        self._store, self._steps = store, steps
        self._kept: OrderedDict[tuple[GenerationKey, int, str], StepNumbers] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, generation: GenerationRecord, first: int, last: int) -> list[StepNumbers]:
        """The planned steps in [first, last), in order, each from the generation of the lineage that has it."""
        found: list[StepNumbers] = []
        for span in reversed(lineage_spans(self._store.generations.lineage(generation.key))):
            low, high = max(first, span.first), min(last, span.last)
            if low < high:
                found += self._read(span, low, high)
        return found

    def one(self, generation: GenerationRecord, step: int) -> StepNumbers | None:
        """A step; None where it is not planned."""
        return next(iter(self.read(generation, step, step + 1)), None)

    def _read(self, span: Span, first: int, last: int) -> list[StepNumbers]:
        digests = self._store.plans.digests(span.key, first, last)
        with self._lock:
            known = {step: self._kept.get((span.key, step, digest)) for step, digest in digests.items()}
        missing = [step for step, numbers in known.items() if numbers is None]
        fresh = {found.step: _numbers(span, found) for found in self._steps.summaries(span.key, missing)}
        self._keep(span.key, fresh)
        together = {step: numbers for step, numbers in known.items() if numbers is not None} | fresh
        return [together[step] for step in sorted(together)]

    def _keep(self, key: GenerationKey, fresh: dict[int, StepNumbers]) -> None:
        with self._lock:
            for step, numbers in fresh.items():
                self._kept[key, step, numbers.digest] = numbers
            while len(self._kept) > CAPACITY_STEPS:
                self._kept.popitem(last=False)


def _numbers(span: Span, found: StepSummary) -> StepNumbers:
    summary = found.summary
    graph: dict[str, Any] = summary.get("graph", {})
    num_ranks = span.mesh.get("dp", 1)
    tokens_R, cost_R = _by_rank(graph, num_ranks)
    credit = summary.get("origins", {}).get("credit", [np.nan] * len(summary["weights"]))
    return StepNumbers(
        step=found.step,
        revision=found.revision,
        generation=span.key.generation,
        digest=found.digest,
        num_tokens=summary["num_tokens"],
        capacity=summary.get("capacity"),
        aligned_tokens=graph.get("aligned_tokens"),
        weights_S=(np.array(summary["weights"]) / ONE).astype(np.float32),
        source_tokens_S=np.array(summary["source_tokens"], np.int64),
        total_tokens_S=np.array(summary["total_tokens"], np.int64),
        credit_S=np.array(credit, np.float32),
        cost_R=cost_R,
        tokens_R=tokens_R,
        num_ranks=num_ranks,
    )


def _by_rank(graph: dict[str, Any], num_ranks: int) -> tuple[Int64Array, Float32Array]:
    """Tokens, and cost over the mean."""
    if "ranks" in graph:
        return unpacked(graph["ranks"]["tokens"]), (unpacked(graph["ranks"]["cost"]) / RANK_UNIT).astype(np.float32)
    if "rank_cost" not in graph:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    cost_R = np.array(graph["rank_cost"], np.float32)
    groups = np.arange(num_ranks) * rank_groups(num_ranks) // num_ranks
    mean_R = np.bincount(groups, minlength=len(cost_R)) * (cost_R.sum() / num_ranks)
    return np.array(graph["rank_tokens"], np.int64), (cost_R / np.maximum(mean_R, 1e-9)).astype(np.float32)
