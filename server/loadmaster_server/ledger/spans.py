"""Sets of whole numbers as sorted stretches: positions of a block, tokens of a sample."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Spans:
    """A set of non-negative numbers that mostly lie side by side. Not thread-safe."""

    __slots__ = ("_starts", "_stops", "size")

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.size = 0
        for start, stop in spans:
            self.add(start, stop)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)

    def __contains__(self, number: int) -> bool:
        i = bisect_right(self._starts, number) - 1
        return i >= 0 and number < self._stops[i]

    @property
    def top(self) -> int:
        """One more than the largest; 0 where it is empty."""
        return self._stops[-1] if self._stops else 0

    @property
    def is_from_zero(self) -> bool:
        """Whether it holds every number below `top`."""
        return self.size == self.top

    def add(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Add [start, stop).

        Returns:
            The stretches of it that were in before.
        """
        if self._stops and start == self._stops[-1]:  # nearly always
            self._stops[-1] = stop
            self.size += stop - start
            return []
        i, j = bisect_left(self._stops, start), bisect_right(self._starts, stop)
        touched = list(zip(self._starts[i:j], self._stops[i:j], strict=True))
        again = [(max(a, start), min(b, stop)) for a, b in touched if max(a, start) < min(b, stop)]
        self._starts[i:j] = [min([start, *(a for a, _ in touched)])]
        self._stops[i:j] = [max([stop, *(b for _, b in touched)])]
        self.size += stop - start - sum(b - a for a, b in again)
        return again

    def gaps(self, top: int) -> Iterator[tuple[int, int]]:
        """The stretches of [0, top) that are not in it."""
        at = 0
        for start, stop in self:
            if at < min(start, top):
                yield at, min(start, top)
            at = max(at, stop)
        if at < top:
            yield at, top

    def joined(self, other: Spans) -> Spans:
        """Both together."""
        return Spans([*self, *other])
