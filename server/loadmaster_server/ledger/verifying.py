"""Proves over a plan log that every piece of a stream was delivered exactly once, or says which was not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from loadmaster_flight.wire.ledger import Fault, VerifyReport
from loadmaster_flight.wire.step_plan import Pieces

from ..planning.origins import decode_origins
from ..planning.state import PlannerState
from ..store import PlanRecord, Store, StreamKey
from .accounts import LOG, NOWHERE, Accounts, Finding
from .closing import LeftOut, checked, close
from .log import LineageLog, Window, problem_of
from .naming import SampleNames
from .ranges import split_pieces

MAX_FAULTS = 200
"""Faults that are listed; all of them are counted."""
NEWS_S = 0.5


class Verification:
    """One pass over a stream's log. Used by one thread; memory follows what is open, not the number of steps.

    Args:
        store: Has the log.
        key: The stream.
        generation: Whose lineage; by default the newest.
        names: Puts samples into words.
    """

    def __init__(self, store: Store, key: StreamKey, generation: int | None, names: SampleNames) -> None:
        self._store, self._names = store, names
        self._log = LineageLog(store, key, generation)
        self._accounts = Accounts()
        self._left_out = LeftOut.of(store.verdicts.left_out_by_block(key))
        self._findings: list[Finding] = []
        self._expected = self._log.first
        self._end: int | None = None
        newest = self._log.newest
        self._report = VerifyReport(
            run=key.run,
            stream=key.stream,
            generation=newest.key.generation,
            is_done=False,
            acknowledged=newest.acknowledged,
            read_to=self._log.first,
            closed_at=self._log.first,
            lineage=self._log.words(),
        )

    def run(self) -> Iterator[VerifyReport]:
        """Go through the log; yields how far it is, twice a second, and the whole report last."""
        if self._log.first:
            self._note([Finding(LOG, self._log.first, f"the lineage begins at step {self._log.first}, not 0")])
        news_s = time.monotonic() + NEWS_S
        for window in self._log.windows():
            self._take_window(window)
            if time.monotonic() >= news_s:
                news_s = time.monotonic() + NEWS_S
                yield self._report
        self._check_missing(self._log.planned)
        yield self._finished()

    def _take_window(self, window: Window) -> None:
        """A window's steps; the accounts are closed at its last checkpoint."""
        found = self._store.plans.checkpoint(window.span.key, window.last)
        at = found[0] if found is not None and found[0] > window.first else None
        for record in window.records:
            if record.step == at and found is not None:
                self._close(*found)
            self._take_record(record, window.pieces.get(record.step))
        self._check_missing(window.last)
        if at == window.last and found is not None:
            self._close(*found)
        self._report = replace(self._report, read_to=window.last)

    def _take_record(self, record: PlanRecord, pieces: Pieces | None) -> None:
        self._check_missing(record.step)
        self._expected = record.step + 1
        if pieces is None:
            plan, problem = problem_of(record)
            pieces = None if plan is None else plan.pieces
            if problem:
                self._note([Finding(LOG, record.step, f"step {record.step}: {problem}")])
        else:
            self._report = replace(self._report, bodies_gone=self._report.bodies_gone + 1)
        if self._end is not None and record.step >= self._end:
            self._note([Finding(LOG, record.step, f"step {record.step} comes after the last, {self._end - 1}")])
        if record.is_final:
            self._end = record.step + 1
        if pieces is not None:
            self._take(record, pieces)

    def _take(self, record: PlanRecord, pieces: Pieces) -> None:
        try:
            origins = decode_origins(record.step, len(pieces), record.summary)
        except (ValueError, KeyError, TypeError) as error:
            self._note([Finding(LOG, record.step, f"step {record.step}: its summary does not fit its body: {error}")])
            origins = None
        if origins is not None and len(origins.sample_tokens_M) != int((pieces.num_tokens >= 0).sum()):
            text = f"step {record.step}: its summary tells of {len(origins.sample_tokens_M)} cut pieces, not its body's"
            self._note([Finding(LOG, record.step, text)])
            origins = None
        before = self._accounts.num_samples, self._accounts.num_cut
        self._note(self._accounts.take(record.step, *split_pieces(pieces, origins)))
        self._count(record.step, len(pieces), before)

    def _count(self, step: int, num_pieces: int, before: tuple[int, int]) -> None:
        r, accounts = self._report, self._accounts
        if self._log.is_left_out(step):
            self._report = replace(r, left_out_steps=r.left_out_steps + 1)
        elif step < r.acknowledged:
            samples, cut = accounts.num_samples - before[0], accounts.num_cut - before[1]
            self._report = replace(
                r,
                pieces=r.pieces + num_pieces,
                samples=r.samples + samples,
                cut_samples=r.cut_samples + cut,
            )
        else:
            self._report = replace(r, planned_pieces=r.planned_pieces + num_pieces)

    def _check_missing(self, step: int) -> None:
        """Steps up to here that are not in the log."""
        if self._expected < step:
            steps = (
                f"step {self._expected} is" if self._expected + 1 == step else f"steps {self._expected} to {step} are"
            )
            self._note([Finding(LOG, self._expected, f"{steps} missing from the log")])
            self._expected = step

    def _close(self, step: int, data: bytes) -> None:
        state: PlannerState | str = checked(data)
        if isinstance(state, str):
            self._note([Finding(LOG, step, f"the checkpoint at step {step} cannot be read: {state}")])
            return
        self._note(close(self._accounts, state, self._left_out))
        self._report = replace(self._report, closed_at=step, queued=len(state.queue))

    def _note(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._report = replace(self._report, num_faults=self._report.num_faults + 1)
            if len(self._findings) < MAX_FAULTS:
                self._findings.append(finding)

    def _finished(self) -> VerifyReport:
        return replace(
            self._report,
            is_done=True,
            skipped=sum(map(len, self._left_out.by_block.values())),
            faults=self._faults(),
        )

    def _faults(self) -> list[Fault]:
        asked = [(f.place, f.pos, f.first) for f in self._findings if f.place is not None and f.pos != NOWHERE]
        names = iter(self._names.of(asked))
        return [
            Fault(
                kind=finding.kind,
                step=finding.step,
                sample=next(names) if finding.place is not None and finding.pos != NOWHERE else "",
                message=finding.text,
            )
            for finding in self._findings
        ]
