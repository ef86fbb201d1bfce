"""What one loader is asked for of a step, and whom else: its shadows, where it does not say that it lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future

import pyarrow as pa

from loadmaster_flight.wire.control import LoaderRoute
from loadmaster_flight.wire.errors import UnavailableError

LOOK_AFTER_S = 0.15
"""A loader that has not answered after this long is looked at; most have answered long before."""
LOOK_AGAIN_S = 0.5


def shadows_of(
    partitions: Iterable[list[int]], shadows: Iterable[LoaderRoute], *, avoid: Collection[str]
) -> dict[str, list[list[int]]]:
    """Which shadow has which of these partitions, by address; nothing where they do not have all of them.

    Args:
        partitions: [source, k, P] triples.
        shadows: Who stands by; the first one that has a partition is taken.
        avoid: Addresses that are not asked.
    """
    place: dict[tuple[int, ...], str] = {}
    for route in shadows:
        if route.address not in avoid:
            for partition in route.partitions:
                place.setdefault(tuple(partition), route.address)
    found: dict[str, list[list[int]]] = {}
    for partition in partitions:
        if (address := place.get(tuple(partition))) is None:
            return {}
        found.setdefault(address, []).append(partition)
    return found


class Ask:
    """Some partitions of a step, asked of their owner and perhaps of its shadows. One thread uses it.

    Args:
        address: Of the owner.
        ask_shadows: Asks all shadows for their parts; none where they do not have everything.
        look: Begins to find out whether the owner lives.

    Attributes:
        call: To the owner; None: it was not asked.
        instead: To its shadows, all of which have to answer.
    """

    def __init__(
        self, address: str, ask_shadows: Callable[[], list[Future[pa.Table]]], look: Callable[[], Future[bool]]
    ) -> None:
        self.address = address
        self.call: Future[pa.Table] | None = None
        self.instead: list[Future[pa.Table]] = []
        self._ask_shadows, self._look = ask_shadows, look
        self._looking: Future[bool] | None = None
        self._look_s = time.monotonic() + LOOK_AFTER_S
        self._is_looked_at = False

    @property
    def is_in_doubt(self) -> bool:
        """Whether the owner is looked at, or others are asked: then whatever comes first counts."""
        return self._looking is not None or bool(self.instead)

    def ask_shadows(self) -> None:
        """Ask those who stand by, if they have everything."""
        self.instead = self._ask_shadows()

    def has_fallen_silent(self) -> bool:
        """Look after the owner; True once for each time that it was found not to live."""
        if self._looking is not None and self._looking.done():
            lives, self._looking = self._looking.result(), None
            self._look_s, self._is_looked_at = time.monotonic() + LOOK_AGAIN_S, True
            return not lives
        if self._looking is None and self._is_doubtful():
            self._looking = self._look()
        return False

    def tables(self) -> list[pa.Table] | None:
        """The pieces of whoever has answered; None while nobody has."""
        if self.call is not None and _is_good(self.call):
            return [self.call.result()]
        if self.instead and all(_is_good(call) for call in self.instead):
            return [call.result() for call in self.instead]
        return None

    def failure(self) -> BaseException:
        """Why there are no pieces, of one that is decided without any: the owner's word goes first."""
        failed = (call.exception() for call in self._calls() if call.done())
        return next(error for error in failed if error is not None)

    def is_decided(self) -> bool:
        """Whether there are pieces, or nobody is left who could send them."""
        if self.tables() is not None:
            return True
        if self.call is not None and (not self.call.done() or self._is_unsure(self.call)):
            return False
        return not self.instead or any(_has_failed(call) for call in self.instead)

    def running(self) -> list[Future[pa.Table] | Future[bool]]:
        """What is being waited for."""
        looking = [] if self._looking is None else [self._looking]
        return [future for future in [*self._calls(), *looking] if not future.done()]

    def _calls(self) -> list[Future[pa.Table]]:
        return self.instead if self.call is None else [self.call, *self.instead]

    def _is_unsure(self, call: Future[pa.Table]) -> bool:
        """Whether an owner that could not be reached has yet to be looked at: it may have said so of its storage."""
        return isinstance(call.exception(), UnavailableError) and not self._is_looked_at

    def _is_doubtful(self) -> bool:
        if self.call is None:
            return False
        return self._is_unsure(self.call) if self.call.done() else time.monotonic() >= self._look_s


def _is_good(call: Future[pa.Table]) -> bool:
    return call.done() and call.exception() is None


def _has_failed(call: Future[pa.Table]) -> bool:
    return call.done() and call.exception() is not None
