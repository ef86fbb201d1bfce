"""Getting the pieces of a planned step from the loaders that own them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import pyarrow as pa

from loadmaster_flight.wire.control import Assignment, LoaderRoute
from loadmaster_flight.wire.errors import LoadmasterError, MovedError, NotReadyError, UnavailableError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.schemas import PIECES
from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_flight.wire.tickets import MaterializeTicket, sign
from loadmaster_flight.wire.tls import Tls

MATERIALIZE_TIMEOUT_S = 120.0
MAX_PARALLEL = 32
HANG_S = 0.5
"""After this long without an answer a loader is reported: the planner knows whether it is heard of."""
LOOK_S = 0.05

Report = Callable[[str, str, bool], None]
"""address, what went wrong, whether it only does not answer"""


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
        calls = {
            address: self._pool.submit(self._materialize, address, _ticket(assignment, plan, partitions))
            for address, partitions in needed.items()
        }
        self._await(calls, is_current)
        answers = [self._answer(address, call) for address, call in calls.items()]
        failures = [answer for answer in answers if isinstance(answer, LoadmasterError)]
        if failures:
            raise min(failures, key=lambda error: error.retry)
        return pa.concat_tables([PIECES.empty_table(), *answers])

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _await(self, calls: dict[str, Future[pa.Table]], is_current: Callable[[], bool]) -> None:
        """Wait until all have answered; a loader that was stopped never does."""
        until_s = time.monotonic() + HANG_S
        pending = wait(calls.values(), LOOK_S).not_done
        while pending:
            silent = [address for address, call in calls.items() if call in pending]
            if not is_current():
                for address in silent:  # a call in progress cannot be ended from outside: its thread is left to it
                    self._peers.pop(address, None)
                raise MovedError(f"loader {silent[0]} has not answered, and others have its partitions now")
            if time.monotonic() > until_s:
                until_s = time.monotonic() + 2 * HANG_S
                for address in silent:
                    self._pool.submit(self._on_unreachable, address, f"no answer for {HANG_S} s", True)
            pending = wait(pending, LOOK_S).not_done

    def _materialize(self, address: str, ticket: MaterializeTicket) -> pa.Table:
        peer = self._peers.get(address) or self._peers.setdefault(address, FlightPeer(address, tls=self._tls))
        return peer.read_all(sign(ticket, self._ticket_key()), timeout_s=MATERIALIZE_TIMEOUT_S)

    def _answer(self, address: str, call: Future[pa.Table]) -> pa.Table | LoadmasterError:
        """What one loader answered; when it failed its connection is dropped and the error says whose it was."""
        try:
            return call.result()
        except LoadmasterError as error:
            if peer := self._peers.pop(address, None):
                peer.close()
            if isinstance(error, UnavailableError):
                self._on_unreachable(address, error.message, False)
            return type(error)(f"loader {address}: {error.message}", **error.details)


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
