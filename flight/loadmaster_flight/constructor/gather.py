"""Getting the pieces of a planned step from the loaders that own them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import numpy as np
import pyarrow as pa

from loadmaster_flight.wire.control import Assignment, LoaderRoute
from loadmaster_flight.wire.errors import LoadmasterError, MovedError, NotReadyError, UnavailableError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.schemas import PIECES
from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_flight.wire.tickets import MaterializeTicket, sign
from loadmaster_flight.wire.tls import Tls
from loadmaster_flight.wire.watchdog import lives

from .asking import Ask, shadows_of

MATERIALIZE_TIMEOUT_S = 120.0
MAX_PARALLEL = 32
LOOK_S = 0.05
ALIVE_S = 0.25
"""A loader that does not say within this time that it lives is reported, and its shadows are asked."""

Report = Callable[[str, str, bool], None]
"""address, what went wrong, whether it only does not answer"""
Call = Callable[[str, list[list[int]]], Future[pa.Table]]
"""Asks an address for partitions."""
LOG = logging.getLogger(__name__)


def needed_partitions(plan: StepPlan, routes: list[LoaderRoute]) -> dict[str, list[list[int]]]:
    """Which partitions at which addresses hold the pieces of a plan, those too that are needed for their images alone.

    Raises:
        NotReadyError: No route covers a piece; names its source and lane.
    """
    pieces = plan.pieces
    needed: dict[str, list[list[int]]] = {}
    is_covered_N = np.zeros(len(pieces), bool)
    for route in routes:
        for source, k, of in route.partitions:
            mine_N = (pieces.source == source) & (pieces.lane % of == k) & ~is_covered_N
            if mine_N.any():
                needed.setdefault(route.address, []).append([source, k, of])
                is_covered_N |= mine_N
    if not is_covered_N.all():
        at = int(np.flatnonzero(~is_covered_N)[0])
        raise NotReadyError(f"no loader owns lane {pieces.lane[at]} of source {pieces.source[at]} yet")
    return needed


class Gatherer:
    """Asks loaders for pieces, all at once. Used by one thread; connections are kept between steps.

    A loader that does not say that it lives is reported, and where shadows have all that it was asked for, they are
    asked instead: what a step holds is decided by its plan, so whoever answers first will do.

    Args:
        ticket_key: Gives the key that tickets are signed with.
        on_unreachable: Called when a loader could not be reached, or does not answer.
        tls: How to call loaders; None: what the environment says.
    """

    def __init__(
        self, ticket_key: Callable[[], bytes], on_unreachable: Report = lambda *_: None, *, tls: Tls | None = None
    ) -> None:
        self._ticket_key, self._on_unreachable, self._tls = ticket_key, on_unreachable, tls
        self._peers: dict[str, FlightPeer] = {}
        self._pool = ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="gather")
        self._silent: dict[str, Future[pa.Table]] = {}
        self.num_instead = 0
        """How often shadows were asked instead of a loader."""

    def gather(
        self, assignment: Assignment, plan: StepPlan, *, is_current: Callable[[], bool] = lambda: True
    ) -> pa.Table:
        """The pieces of a slice of a plan, schema PIECES, in no order.

        Args:
            assignment: Its routes say who has them.
            plan: The slice.
            is_current: Whether the routes still hold; when they do not any more, calls without an answer are given up.

        Raises:
            MovedError: The routes have changed before all had answered.
            LoadmasterError: A loader failed; the message names it. A permanent failure goes before a retryable one.
        """
        needed = needed_partitions(plan, assignment.loaders)

        def call(address: str, partitions: list[list[int]]) -> Future[pa.Table]:
            return self._pool.submit(self._materialize, address, _ticket(assignment, plan, partitions))

        asks = [self._ask(assignment, call, address, partitions) for address, partitions in needed.items()]
        self._await(asks, is_current)
        failures = [self._failure(ask) for ask in asks if ask.tables() is None]
        if failures:
            raise min(failures, key=lambda error: error.retry)
        return pa.concat_tables([PIECES.empty_table(), *(table for ask in asks for table in ask.tables() or [])])

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _ask(self, assignment: Assignment, call: Call, address: str, partitions: list[list[int]]) -> Ask:
        """Ask an owner; one that has yet to answer an earlier step is passed over where its shadows can answer."""
        silent = {other for other, of_old in self._silent.items() if not of_old.done()}
        self._silent = {other: of_old for other, of_old in self._silent.items() if other in silent}
        shadows = shadows_of(partitions, assignment.shadows, avoid={address} | silent)
        ask = Ask(
            address,
            ask_shadows=lambda: [call(shadow, theirs) for shadow, theirs in shadows.items()],
            look=lambda: self._look(address),
        )
        if address not in silent or not shadows:
            ask.call = call(address, partitions)
            return ask
        self._report(address)
        self._ask_shadows(ask)
        return ask

    def _await(self, asks: list[Ask], is_current: Callable[[], bool]) -> None:
        """Wait until all are answered; a loader that was stopped never does."""
        while pending := [ask for ask in asks if not ask.is_decided()]:
            until = FIRST_COMPLETED if any(ask.is_in_doubt for ask in pending) else ALL_COMPLETED
            wait([future for ask in pending for future in ask.running()], LOOK_S, until)
            for ask in pending:
                if ask.has_fallen_silent():
                    self._note_silent(ask)
            still = [ask for ask in pending if not ask.is_decided()]
            if still and not is_current():
                for ask in still:  # a call in progress cannot be ended from outside: its thread is left to it
                    self._peers.pop(ask.address, None)
                raise MovedError(f"loader {still[0].address} has not answered, and others have its partitions now")

    def _note_silent(self, ask: Ask) -> None:
        self._report(ask.address)
        if ask.call is not None and not ask.call.done():
            self._silent[ask.address] = ask.call
        if not ask.instead:
            self._ask_shadows(ask)
            if ask.instead:
                LOG.info("loader %s does not answer: its shadows are asked", ask.address)

    def _ask_shadows(self, ask: Ask) -> None:
        ask.ask_shadows()
        self.num_instead += bool(ask.instead)

    def _report(self, address: str) -> None:
        self._pool.submit(self._on_unreachable, address, "it does not say that it lives", True)

    def _look(self, address: str) -> Future[bool]:
        return self._pool.submit(lambda: lives(self._peer(address), timeout_s=ALIVE_S))

    def _materialize(self, address: str, ticket: MaterializeTicket) -> pa.Table:
        return self._peer(address).read_all(sign(ticket, self._ticket_key()), timeout_s=MATERIALIZE_TIMEOUT_S)

    def _peer(self, address: str) -> FlightPeer:
        return self._peers.get(address) or self._peers.setdefault(address, FlightPeer(address, tls=self._tls))

    def _failure(self, ask: Ask) -> LoadmasterError:
        """Why there are no pieces: the owner's connection is dropped and the error says whose it was."""
        self._silent.pop(ask.address, None)  # its shadows are no help: it is asked itself the next time
        error = ask.failure()
        if not isinstance(error, LoadmasterError):
            raise error
        if peer := self._peers.pop(ask.address, None):
            peer.close()
        if isinstance(error, UnavailableError):
            self._on_unreachable(ask.address, error.message, False)
        return type(error)(f"loader {ask.address}: {error.message}", **error.details)


def _ticket(assignment: Assignment, plan: StepPlan, partitions: list[list[int]]) -> MaterializeTicket:
    return MaterializeTicket(
        run=assignment.run,
        stream=assignment.stream,
        generation=assignment.generation,
        first_step=plan.step,
        last_step=plan.step + 1,
        digests=[plan.digest],
        dp_ranks=sorted(set(assignment.dp_of_rank)),
        partitions=partitions,
        encoder_ranks=sorted(assignment.ranks) if plan.is_hybrid else [],
        expires_at=time.time() + MATERIALIZE_TIMEOUT_S,
    )
