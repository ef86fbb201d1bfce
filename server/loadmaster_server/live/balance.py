"""Step by step: what was planned, what was served, and how evenly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadmaster_flight.wire.errors import BadRequestError, NotFoundError

from ..store import GenerationRecord, Store, StreamKey
from .scene import rounded
from .schemas import BalanceView, RankCosts, ShareColumns, StepColumns
from .step_log import StepLog, StepNumbers

MAX_STEPS = 400
MAX_SOURCES = 64
TOP_SOURCES = 12
DEFAULT_STEPS = 120
MAX_SHARES = 4800
"""Sources times steps of an answer."""
OTHERS = "others"
LAST = -1


class BalanceModel:
    """Reads the balance. Any thread may call it."""

    def __init__(self, store: Store, log: StepLog) -> None:
        self._store, self._log = store, log

    def read(
        self,
        key: StreamKey,
        *,
        first: int | None = None,
        last: int | None = None,
        sources: Sequence[str] = (),
        step: int | None = None,
        at: float,
    ) -> BalanceView:
        """The steps [first, last) of the trained lineage; by default the last ones that are bound.

        Args:
            sources: Whose shares are wanted; none: the heaviest, and the others together.
            step: Of which the dp ranks are wanted; LAST: of the last one of the range.

        Raises:
            NotFoundError: No such run or stream, or `step` is not planned.
            BadRequestError: The range is empty or too long, or a source is none of the run's.
        """
        names = self._store.runs.definition(key.run).spec.source_names
        _check_sources(sources, names)
        generation = self._store.generations.newest(key)
        first, last = _range(generation, first, last, len(sources) or TOP_SOURCES + 1)
        found = self._log.read(generation, first, last) if generation else []
        if step == LAST:
            step = found[-1].step if found else None
        return BalanceView(
            run=key.run,
            stream=key.stream,
            generation=generation.key.generation if generation else -1,
            at=round(at, 3),
            first_step=first,
            last_step=last,
            sources=names,
            steps=_steps(found),
            shares=_shares(found, names, sources),
            ranks=self._ranks(generation, key, step) if step is not None else None,
        )

    def _ranks(self, generation: GenerationRecord | None, key: StreamKey, step: int) -> RankCosts:
        numbers = self._log.one(generation, step) if generation else None
        if numbers is None:
            raise NotFoundError(f"step {step} of {key} is not planned")
        return RankCosts(
            step=step,
            dp=numbers.first_ranks().tolist(),
            cost=[round(value, 4) for value in numbers.cost_R.tolist()],
            tokens=numbers.tokens_R.tolist(),
            is_grouped=numbers.is_grouped,
        )


def _range(
    generation: GenerationRecord | None, first: int | None, last: int | None, num_sources: int
) -> tuple[int, int]:
    bound = generation.bound if generation else 0
    most = min(MAX_STEPS, max(1, MAX_SHARES // num_sources))
    last = (bound if first is None else first + DEFAULT_STEPS) if last is None else last
    first = max(0, last - min(DEFAULT_STEPS, most)) if first is None else first
    if not 0 <= first <= last <= first + MAX_STEPS:
        raise BadRequestError(f"from and to must be 0 <= from <= to <= from + {MAX_STEPS}, got {first} and {last}")
    return first, min(last, first + most)


def _check_sources(sources: Sequence[str], names: Sequence[str]) -> None:
    if len(sources) > MAX_SOURCES:
        raise BadRequestError(f"sources must be at most {MAX_SOURCES} names, got {len(sources)}")
    known = set(names)
    unknown = next((name for name in sources if name not in known), None)
    if unknown is not None:
        raise BadRequestError(f"sources must be sources of the run, got {unknown!r}")


def _steps(found: list[StepNumbers]) -> StepColumns:
    skews = [numbers.skew for numbers in found]
    means = [1 / numbers.num_ranks if numbers.skew is not None else None for numbers in found]
    return StepColumns(
        step=[numbers.step for numbers in found],
        revision=[numbers.revision for numbers in found],
        generation=[numbers.generation for numbers in found],
        digest=[numbers.digest[:16] for numbers in found],
        num_tokens=[numbers.num_tokens for numbers in found],
        fill=[_round(numbers.fill) for numbers in found],
        cost_max=[
            _round(s * m, 9) if s is not None and m is not None else None for s, m in zip(skews, means, strict=True)
        ],
        cost_mean=[_round(mean, 9) for mean in means],
        skew=[_round(skew) for skew in skews],
    )


def _round(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


def _shares(found: list[StepNumbers], names: Sequence[str], wanted: Sequence[str]) -> ShareColumns:
    """Planned and served shares; an older step knows fewer sources where some were added since."""
    num = len(names)
    weights, served, credit = (
        np.array([_padded(getattr(n, name), num) for n in found], np.float64).reshape(len(found), num)
        for name in ("weights_S", "source_tokens_S", "credit_S")
    )
    chosen = [names.index(name) for name in wanted] if wanted else _heaviest(weights)
    rest = [] if wanted else sorted(set(range(num)) - set(chosen))
    share = served / np.maximum(served.sum(axis=1, keepdims=True), 1)
    groups = [[i] for i in chosen] + ([rest] if rest else [])
    return ShareColumns(
        source=[names[i] for i in chosen] + ([OTHERS] if rest else []),
        planned=[_list(weights[:, group].sum(axis=1), 6) for group in groups],
        served=[_list(share[:, group].sum(axis=1), 6) for group in groups],
        error_tokens=[rounded(-credit[:, group].sum(axis=1), 0) for group in groups],
    )


def _heaviest(weights: np.ndarray) -> list[int]:
    if not len(weights):
        return []
    order: list[int] = np.argsort(-weights.mean(axis=0), kind="stable")[:TOP_SOURCES].tolist()
    return order


def _padded(values: np.ndarray, num: int) -> np.ndarray:
    return values if len(values) == num else np.append(values, np.zeros(num - len(values), values.dtype))


def _list(values: np.ndarray, digits: int) -> list[float]:
    return [value for value in rounded(values, digits) if value is not None]
