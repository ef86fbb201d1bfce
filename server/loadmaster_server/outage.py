"""What a thread of the planner does about failures: it goes on, and the log has each outage once."""

from __future__ import annotations

import logging

from loadmaster_flight.wire.errors import LoadmasterError

LOG = logging.getLogger(__name__)


class OutageLog:
    """Logs what the rounds of a loop meet. One thread calls it.

    What passes by itself (the store is away) is logged when it begins and when it is over; anything else with its place
    in the code, and again only when it is another failure.

    Args:
        what: What the loop is for, as the beginning of a sentence: "leases".
    """

    def __init__(self, what: str) -> None:
        self._what, self._is_out, self._told = what, False, ""

    @property
    def is_out(self) -> bool:
        """Whether the last round met something that passes by itself."""
        return self._is_out

    def met(self, error: Exception) -> None:
        """A round failed; there will be another one."""
        if not isinstance(error, LoadmasterError) or not error.retry:
            if self._told != repr(error):
                self._told = repr(error)
                LOG.error("%s: %s; trying again", self._what, error, exc_info=error)
        elif not self._is_out:
            self._is_out = True
            LOG.warning("%s: %s; trying on", self._what, error.message)

    def went_well(self) -> None:
        """A round came to its end."""
        self._told = ""
        if self._is_out:
            self._is_out = False
            LOG.info("%s: it goes on", self._what)
