"""Sees to it that every generation that is being read has its plan loop."""

from __future__ import annotations

import threading

from loadmaster_flight.wire.stages import StageClock
from loadmaster_flight.wire.tls import Tls

from ..outage import OutageLog
from ..store import ACTORS, GenerationKey, Store, StreamKey
from .counters import Counters
from .loop import PlanLoop

LOOK_S = 2.0
RETRY_S = 0.5


class PlanSupervisor:
    """Starts a loop for each generation that opens, and after a restart for those that were open; stops fenced ones.

    Args:
        store: Says which generations there are.
        checkpoint_steps: Steps from one base checkpoint of a stream to the next.
        counters: Told of restores and checkpoints.
        tls: How to call loaders; None: what the environment says.
    """

    def __init__(self, store: Store, *, checkpoint_steps: int, counters: Counters, tls: Tls | None = None) -> None:
        self._store, self._checkpoint_steps, self._counters, self._tls = store, checkpoint_steps, counters, tls
        self._loops: dict[GenerationKey, PlanLoop] = {}
        self._thread = threading.Thread(target=self._watch, name="plan-supervisor", daemon=True)
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin to supervise; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End all loops; the store's bulletin must be closed first. At most about 2 s. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        for loop in self._loops.values():
            loop.stop()
        for loop in self._loops.values():
            loop.join(1.0 / len(self._loops))

    def clocks(self) -> dict[StreamKey, StageClock]:
        """How the loops that run now spend their time."""
        return {key.stream_key: loop.clock for key, loop in list(self._loops.items())}

    def _watch(self) -> None:
        outage = OutageLog("the plan loops")
        while not self._stop.is_set() and not self._store.bulletin.is_closed:
            seen = self._store.bulletin.seen(ACTORS)
            try:
                self._reconcile()
                outage.went_well()
            except Exception as error:  # whatever it is, streams that open later need their loops
                outage.met(error)
            self._store.bulletin.wait(ACTORS, seen, RETRY_S if outage.is_out else LOOK_S)

    def _reconcile(self) -> None:
        wanted = {generation.key for generation in self._store.generations.live()}
        pardons = {key.stream_key: loop.pardons for key, loop in self._loops.items()}
        for key in set(self._loops) - wanted:
            self._loops.pop(key).stop()
        for key in wanted:
            if key not in self._loops or not self._loops[key].is_alive:
                self._loops[key] = PlanLoop(
                    self._store,
                    key,
                    checkpoint_steps=self._checkpoint_steps,
                    pardons=pardons.get(key.stream_key),
                    counters=self._counters,
                    tls=self._tls,
                )
                self._loops[key].start()
