"""The query of a request for plans, parsed and checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.step_plan import StepPlan

MAX_STEPS = 64
"""Steps of one answer at most."""
MAX_WAIT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuery:
    """Steps [first, last), as the slice of some dp ranks and some partitions.

    Attributes:
        wait_s: How long to wait for the first of them.
        dp_ranks: None for all ranks.
        encoder_ranks: With dp_ranks, also the pieces of which these ranks of the mesh encode images.
        partitions: (source, k, P) triples: lanes l of the source with l mod P = k. None for all lanes of all sources.
        is_binding: Bind the steps before they are handed out.
    """

    first: int
    last: int
    wait_s: float = 0.0
    dp_ranks: frozenset[int] | None = None
    encoder_ranks: frozenset[int] = frozenset()
    partitions: tuple[tuple[int, int, int], ...] | None = None
    is_binding: bool = False

    def slice(self, plan: StepPlan) -> StepPlan:
        """The part of a plan that was asked for; it keeps the digest of the whole."""
        if self.dp_ranks is not None:
            plan = plan.of_ranks(set(self.dp_ranks), self.encoder_ranks)
        return plan if self.partitions is None else plan.of_partitions(self.partitions)


def parse_query(
    *,
    first: int,
    last: int,
    wait_s: float,
    dp_ranks: str | None,
    partitions: str | None,
    bind: bool,
    encoder_ranks: str | None = None,
) -> PlanQuery:
    """Check a request for plans.

    Args:
        first: First step.
        last: Step after the last one.
        wait_s: Longest wait, in seconds; more than 20 is taken as 20.
        dp_ranks: `0,1`.
        partitions: `source:k:P,source:k:P`.
        bind: Whether to bind.
        encoder_ranks: `0,1`; only with dp_ranks.

    Raises:
        BadRequestError: A part of it is impossible; names the field.
    """
    if not 0 <= first <= last:
        raise BadRequestError(f"first and last must be ordered and not negative, got first {first} and last {last}")
    if not wait_s >= 0:
        raise BadRequestError(f"wait_s must be at least 0, got {wait_s}")
    if encoder_ranks is not None and dp_ranks is None:
        raise BadRequestError(f"encoder_ranks must come with dp_ranks, got encoder_ranks {encoder_ranks!r} alone")
    return PlanQuery(
        first=first,
        last=min(last, first + MAX_STEPS),
        wait_s=min(wait_s, MAX_WAIT_S),
        dp_ranks=None if dp_ranks is None else frozenset(_numbers("dp_ranks", dp_ranks.split(","))),
        encoder_ranks=frozenset(_numbers("encoder_ranks", encoder_ranks.split(",")) if encoder_ranks else ()),
        partitions=None if partitions is None else tuple(_partition(part) for part in partitions.split(",")),
        is_binding=bind,
    )


def _partition(text: str) -> tuple[int, int, int]:
    parts = _numbers("partitions", text.split(":"))
    if len(parts) != 3 or not parts[1] < parts[2]:
        raise BadRequestError(f"partitions must be source:k:P with k < P, got {text!r}")
    return parts[0], parts[1], parts[2]


def _numbers(field: str, parts: Iterable[str]) -> list[int]:
    texts = [part.strip() for part in parts]
    if not all(text.isascii() and text.isdecimal() and len(text) < 10 for text in texts):
        raise BadRequestError(f"{field} must hold whole numbers from 0, got {','.join(texts)!r}")
    return [int(text) for text in texts]
