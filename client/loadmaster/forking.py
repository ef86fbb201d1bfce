"""A stream must not be carried over a fork: gRPC hangs in the child. Found out here, and said."""

from __future__ import annotations

import os
import weakref

from loadmaster_flight.wire.errors import BadRequestError


class ForkGuard:
    """Remembers which process it was made in. Any thread may call."""

    def __init__(self) -> None:
        self._is_child = False
        _GUARDS.add(self)

    @property
    def is_child(self) -> bool:
        """Whether this is a process forked from the one that made the guard."""
        return self._is_child

    def check(self) -> None:
        """Raises BadRequestError in a process forked from the one that made this."""
        if self._is_child:
            raise BadRequestError(
                "a stream cannot be used after a fork: connect in the process that reads"
                " (DataLoader workers: multiprocessing_context='spawn', or no workers, prefetching needs none)"
            )

    def _poison(self) -> None:
        self._is_child = True


_GUARDS: weakref.WeakSet[ForkGuard] = weakref.WeakSet()


def _poison_all() -> None:
    for guard in list(_GUARDS):
        guard._poison()


os.register_at_fork(after_in_child=_poison_all)
