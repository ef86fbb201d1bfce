"""The ledger: explains, verifies and compares what was planned."""

from __future__ import annotations

import json
from collections.abc import Iterator

from loadmaster_flight.wire.control import to_json
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.ledger import DiffReport, SampleView, StepView
from loadmaster_flight.wire.tls import Tls

from ..store import Store, StreamKey
from .differing import Side, differ
from .explaining import Choice, Explainer
from .naming import SampleNames
from .verifying import Verification


class LedgerService:
    """Reads the plan log for people. Any thread may call it; nothing of a run changes.

    Args:
        store: Has the log.
        tls: How to call loaders; None: what the environment says.
    """

    def __init__(self, store: Store, *, tls: Tls | None = None) -> None:
        self._store, self._tls = store, tls

    def step(self, key: StreamKey, step: int, choice: Choice) -> StepView:
        """One step: see `Explainer.step`."""
        return Explainer(self._store, key, tls=self._tls).step(step, choice)

    def sample(self, key: StreamKey, sample: str, *, has_text: bool) -> SampleView:
        """One sample: see `Explainer.sample`."""
        return Explainer(self._store, key, tls=self._tls).sample(sample, has_text=has_text)

    def verify(self, key: StreamKey, generation: int | None) -> Iterator[bytes]:
        """Reports as lines of JSON, the last one with `is_done`; what the stream is refused for is raised at once."""
        verification = Verification(self._store, key, generation, SampleNames(self._store, key.run, tls=self._tls))
        return (json.dumps(to_json(report)).encode() + b"\n" for report in verification.run())

    def diff(self, a: str, b: str, stream: str) -> DiffReport:
        """Compare two logs, each named `RUN` or `RUN:GENERATION`."""
        return differ(self._store, _side(a, stream), _side(b, stream), tls=self._tls)


def _side(text: str, stream: str) -> Side:
    run, _, generation = text.partition(":")
    if generation and not generation.isdecimal():
        raise BadRequestError(f"a run must be given as RUN or RUN:GENERATION, got {text!r}")
    return Side(key=StreamKey(run=run, stream=stream), generation=int(generation) if generation else None)
