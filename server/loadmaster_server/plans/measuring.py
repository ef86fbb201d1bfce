"""Fetches metadata from the loaders that hold the leases, until it has come or nobody wants it any more."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa

from loadmaster_flight.wire.errors import (
    DataError,
    ForbiddenError,
    GoneError,
    LoadmasterError,
    NotFoundError,
    RetryableError,
    UnauthenticatedError,
    UnavailableError,
)
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.http import retrying
from loadmaster_flight.wire.schemas import METADATA
from loadmaster_flight.wire.tickets import MeasureTicket, sign
from loadmaster_flight.wire.tls import Tls

from ..planning.demand import Demand
from ..store import Store
from .daemon_pool import DaemonPool

LOG = logging.getLogger(__name__)
CALL_TIMEOUT_S = 60.0
TICKET_LIFE_S = 120.0
NEWS_S = 3.0
"""After this long without success, say what is being waited for."""
_NOT_YET = (NotFoundError, ForbiddenError, GoneError, UnauthenticatedError)  # its lease is on the way, or was moved


class StoppedError(Exception):
    """The waiting was ended from outside, or is for something that is not needed any more."""


class MetadataFetcher:
    """Asks loaders for metadata, several at once. One thread calls `fetch`; `close` may be called by another.

    Args:
        store: Says who holds which lease, and has the ticket key.
        run: Whose sources.
        say: Takes a sentence on what is being waited for; empty when it has come.
        num_workers: Partitions that are asked at once.
        tls: How to call loaders; None: what the environment says.
    """

    def __init__(
        self, store: Store, run: str, say: Callable[[str], None], *, num_workers: int = 8, tls: Tls | None = None
    ) -> None:
        self._store, self._run, self._say, self._tls = store, run, say, tls
        self._pool = DaemonPool(self._answer, num_workers=num_workers, name=f"measure-{run}")
        self._peers: defaultdict[str, list[FlightPeer]] = defaultdict(list)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._is_waiting = False

    def fetch(self, demands: list[Demand], is_moot: Callable[[], bool] = lambda: False) -> Iterator[pa.RecordBatch]:
        """Answer all demands. An unreachable loader is waited for under its name, as long as the answer is needed.

        Args:
            is_moot: Whether it is not needed any more; any thread may ask, every few seconds of waiting.

        Yields:
            Batches of schema METADATA, in the order of the demands.

        Raises:
            StoppedError: `close` was called, or the answer is not needed any more.
            LoadmasterError: A loader cannot answer, and asking again will not help.
        """
        parts = [(part, is_moot) for demand in demands for _, part in _split(demand, self._owners(demand))]
        for table in self._pool.map(parts):
            yield from table.to_batches()
        if self._is_waiting:
            self._is_waiting = False
            self._tell("")

    def close(self) -> None:
        """End all waits and connections. Idempotent."""
        self._stop.set()
        self._pool.close()
        with self._lock:
            for peer in [peer for peers in self._peers.values() for peer in peers]:
                peer.close()
            self._peers.clear()

    def _owners(self, demand: Demand) -> dict[int, tuple[int, str]]:
        return self._store.actors.partition_owners(self._run, demand.source)

    def _answer(self, asked: tuple[Demand, Callable[[], bool]]) -> pa.Table:
        demand, is_moot = asked
        while not self._stop.is_set():
            try:
                return retrying(lambda: self._ask_owners(demand), deadline_s=NEWS_S, stop=self._stop, what="loaders")
            except RetryableError as error:
                if self._stop.is_set() or is_moot():
                    break
                self._is_waiting = True
                self._tell(error.message)
        raise StoppedError

    def _tell(self, reason: str) -> None:
        """Where the store is away nobody can be told, and it is what is waited for anyway."""
        with suppress(RetryableError):
            self._say(reason)

    def _ask_owners(self, demand: Demand) -> pa.Table:
        """Nearly always one partition; several where the partitions were dealt anew since the demand was split."""
        owners = self._owners(demand)
        tables = [self._ask(owners, slot, part) for slot, part in _split(demand, owners)]
        return pa.concat_tables(tables)

    def _ask(self, owners: dict[int, tuple[int, str]], slot: int, demand: Demand) -> pa.Table:
        name = self._store.runs.definition(self._run).manifests[demand.source].name
        if slot not in owners:
            raise UnavailableError(f"no loader is there for partition {slot} of source {name} of run {self._run}")
        address = owners[slot][1]
        try:
            with self._peer(address) as peer:
                table = peer.read_all(self._ticket(demand), timeout_s=CALL_TIMEOUT_S)
        except _NOT_YET as error:
            raise UnavailableError(f"loader {address}, source {name}: {error.message}") from error
        except LoadmasterError as error:
            error.add_note(f"measuring source {name} at loader {address}")
            raise
        if not table.schema.equals(METADATA):
            raise DataError(f"loader {address}, source {name}: must answer with METADATA, got {table.schema.names}")
        return table

    def _ticket(self, demand: Demand) -> bytes:
        ticket = MeasureTicket(
            run=self._run,
            source=demand.source,
            epoch=demand.epoch,
            cursors=demand.cursors,
            rows_per_lane=demand.rows_per_lane,
            expires_at=time.time() + TICKET_LIFE_S,
        )
        return sign(ticket, self._store.ticket_key)

    @contextmanager
    def _peer(self, address: str) -> Iterator[FlightPeer]:
        """A connection that nobody else uses; it goes back unless it failed."""
        with self._lock:
            peer = self._peers[address].pop() if self._peers[address] else FlightPeer(address, tls=self._tls)
        try:
            yield peer
        except BaseException:
            peer.close()
            raise
        with self._lock:
            if not self._stop.is_set():
                self._peers[address].append(peer)
                return
        peer.close()


def _split(demand: Demand, owners: dict[int, tuple[int, str]]) -> list[tuple[int, Demand]]:
    """The demand by partition: (k, its lanes' part). As one, for partition 0, while nobody owns any."""
    slots = next(iter(owners.values()))[0] if owners else 1
    lanes: defaultdict[int, list[list[int]]] = defaultdict(list)
    for cursor in demand.cursors:
        lanes[cursor[0] % slots].append(cursor)
    return [(slot, replace(demand, cursors=cursors)) for slot, cursors in sorted(lanes.items())]
