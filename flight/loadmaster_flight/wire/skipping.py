"""Steps that a generation leaves out: planned, so that their samples are consumed, and served to nobody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .errors import BadRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The steps [first, last); none where both are equal. After step first - 1 comes step last, on every rank."""

    first: int = 0
    last: int = 0

    @staticmethod
    def of(steps: Sequence[int]) -> Skip:
        """From [a, b), or from an empty list.

        Raises:
            BadRequestError: It is something else; says what.
        """
        if not steps:
            return Skip()
        is_pair = len(steps) == 2 and all(isinstance(step, int) and not isinstance(step, bool) for step in steps)
        if not is_pair or not 0 <= steps[0] < steps[1]:
            raise BadRequestError(f"skip must be two steps (a, b) with 0 <= a < b, got {list(steps)!r}")
        return Skip(first=steps[0], last=steps[1])

    def __len__(self) -> int:
        return self.last - self.first

    def as_list(self) -> list[int]:
        """[a, b), or an empty list: inverse of `of`."""
        return [self.first, self.last] if len(self) else []

    def past(self, step: int) -> int:
        """The first step at or after `step` that is served."""
        return self.last if self.first <= step < self.last else step

    def after(self, step: int) -> int:
        """The step that is served after `step`."""
        return self.past(step + 1)

    def ahead(self, step: int, num_steps: int) -> int:
        """Exclusive bound of the next `num_steps` served steps from `step` on."""
        start = self.past(step)
        end = start + num_steps
        return end + len(self) if start < self.first < end else end

    def served(self, first: int, last: int) -> Iterator[int]:
        """The steps of [first, last) that are served."""
        yield from range(first, min(last, self.first))
        yield from range(max(first, self.last), last)
