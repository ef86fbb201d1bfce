"""Compiling what large steps call before the first of them comes: tens of seconds once on a new machine."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from loadmaster_flight.spec import BatchSpec, Layout

from . import balance, best_fit, fair
from .compiled import HAS_NUMBA

SHORT_PIECE_TOKENS = 64
"""Pieces of a step are taken to be at least this long in the mean, in order to know before any is measured whether
there may be many."""


def may_be_large(batch: BatchSpec) -> bool:
    """Whether steps may have so many pieces that compiled code is used: not where a little one would pay for it."""
    most_bins = max(int(knot.value) for knot in batch.microbatches.knots)
    if batch.layout is Layout.PAD:
        return most_bins * batch.rows >= balance.COMPILE_FROM
    most_tokens = most_bins * max(int(knot.value) for knot in batch.seq_len.knots)
    return most_tokens // max(batch.align, SHORT_PIECE_TOKENS) >= balance.COMPILE_FROM


def warm_up_all() -> None:
    """Compile, or load from the cache, everything that planning a large step calls."""
    balance.warm_up()
    best_fit.best_fit(np.ones(best_fit.COMPILE_FROM, np.int64), best_fit.COMPILE_FROM, 1)
    fair.draw_fairly(_offers(), fair.DrawRules(longest=1, align=1, counts_pieces=False, counts_samples=False), 1)


def _offers() -> fair.Offers:
    """As many samples as compiled code draws from, of one source."""
    num = fair.COMPILE_FROM
    return fair.Offers(
        weight_S=np.array([fair.ONE]),
        credit_S=[0],
        place_S=np.zeros(1, np.int64),
        stop_S=np.array([num]),
        offset_S=np.zeros(1, np.int64),
        tokens_K=np.ones(num, np.int64),
    )


class Warming:
    """Runs `warm_up_all` once, in a thread that keeps no process alive, when the first batch asks for it. Any thread.

    A step that comes meanwhile waits for the rest of it and no longer; steps that are interpreted do not wait.
    """

    def __init__(self, warm_up: Callable[[], None] = warm_up_all) -> None:
        self._thread = threading.Thread(target=warm_up, name="warm-up", daemon=True)
        self._lock = threading.Lock()

    def look_at(self, batch: BatchSpec) -> None:
        """Begin, if steps of such a batch may be large; returns at once."""
        if not (HAS_NUMBA and may_be_large(batch)):
            return
        with self._lock:
            if self._thread.ident is None:
                self._thread.start()

    @property
    def has_begun(self) -> bool:
        return self._thread.ident is not None

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of what has begun; whether it has ended."""
        if self.has_begun:
            self._thread.join(timeout_s)
        return self.has_begun and not self._thread.is_alive()
