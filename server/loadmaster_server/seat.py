"""One planner acts at a time: others on the same database stand by, and take over when its lease lapses."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

import anyio.to_thread
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from loadmaster_flight.wire.errors import ConflictError, LoadmasterError, UnavailableError, to_problem

from .app import Planner, create_app
from .problems import PROBLEM_JSON
from .settings import PlannerSettings
from .state_lock import StateLock
from .store import Database, PlannerLease, upgrade

LOG = logging.getLogger(__name__)
BEATS = 5
"""Renewals within one lease."""
RETRY_S = 0.25
"""Pause before another try where the store is away."""
LOOK_WAIT_S = 1.0
"""A request waits no longer than this for the store to say whether we still act."""
MAX_REQUESTS_AT_ONCE = 512
"""Threads that answer requests: a join or a request for plans holds one while it waits."""


class PlannerSeat:
    """Waits for the planner's lease and runs a planner while it has it; an ASGI app that answers 503 otherwise.

    `start` once, `close` in the end; a server does both by the app's lifespan. Any thread may call the methods.

    Args:
        settings: Where the store is; for how long the holder may be silent.
        url: Own address, by which people know who acts.
    """

    def __init__(self, settings: PlannerSettings, url: str) -> None:
        self.settings = settings
        upgrade(settings.store_url)
        self._lock = _lock_of(settings)
        self._database = Database(settings.store_url)
        place = self._lock.token if self._lock is not None else ""
        holder = f"{url} (pid {os.getpid()} on {socket.gethostname()})"
        self._lease = PlannerLease(self._database, holder=holder, place=place, lease_s=settings.planner_lease_s)
        self._acting: tuple[Planner, FastAPI] | None = None
        self._stop, self._trouble = threading.Event(), ""
        self._tried_s = 0.0
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._hold, name="planner-lease", daemon=True)

    @property
    def planner(self) -> Planner:
        """The planner that acts here.

        Raises:
            UnavailableError: Another one does; names it.
        """
        acting = self._acting
        if acting is None:
            raise self._standing_by()
        return acting[0]

    @property
    def holder(self) -> str:
        """Who acts, as far as is known here."""
        return self._lease.holder

    @property
    def is_acting(self) -> bool:
        """Whether it is this one."""
        return self._acting is not None and self._lease.is_held

    @property
    def is_standing_by(self) -> bool:
        """Whether another one acts. One that acts on a busy machine may be about to renew its lease late."""
        return self._acting is None

    def start(self) -> None:
        """Act if the lease is free, else stand by."""
        self._look()
        if self.is_standing_by:
            LOG.warning("standing by: %s acts", self.holder or "nobody yet")
        self._thread.start()

    def end_waits(self) -> None:
        """Answer all long polls at once, from now on. Idempotent."""
        if self._acting is not None:
            self._acting[0].end_waits()

    def close(self) -> None:
        """Stop acting and give the lease back. Idempotent, at most about 6 s."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        self._step_down()
        releasing = threading.Thread(target=self._release, name="planner-lease-end", daemon=True)
        releasing.start()
        releasing.join(2.0)
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say who does."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if self._acting is not None and not self._lease.is_held:  # we were held up: is it still ours?
            await anyio.to_thread.run_sync(self._look_again)
        acting = self._acting
        if acting is not None and self._lease.is_held:
            await acting[1](scope, receive, send)
        else:
            body = to_problem(self._standing_by())
            await JSONResponse(body, status_code=body["status"], media_type=PROBLEM_JSON)(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = MAX_REQUESTS_AT_ONCE
        await receive()
        try:
            await anyio.to_thread.run_sync(self.start)
        except Exception as error:
            LOG.exception("the planner could not start")
            await anyio.to_thread.run_sync(self.close)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await anyio.to_thread.run_sync(self.close)
        await send({"type": "lifespan.shutdown.complete"})

    def _standing_by(self) -> UnavailableError:
        if self._acting is not None:
            waited_s = time.monotonic() - self._tried_s
            trouble = self._trouble or f"its store has not answered for {waited_s:.0f} s"
            return UnavailableError(f"this planner could not renew its lease: {trouble}")
        return UnavailableError(f"this planner stands by: {self.holder or 'nobody yet'} acts", holder=self.holder)

    def _hold(self) -> None:
        while not self._stop.wait(RETRY_S if self._trouble else self.settings.planner_lease_s / BEATS):
            with self._looking:
                self._try_look()

    def _look_again(self) -> None:
        """Once for all requests that wait for it, and not at all right after a try, or beside one that hangs."""
        if not self._looking.acquire(timeout=LOOK_WAIT_S):
            return
        try:
            if not self._lease.is_held and time.monotonic() - self._tried_s > RETRY_S:
                self._try_look()
        finally:
            self._looking.release()

    def _try_look(self) -> None:
        self._tried_s = time.monotonic()
        try:
            self._look()
            self._trouble = ""
        except LoadmasterError as error:
            if not self._trouble:
                LOG.warning("the planner's lease: %s; trying on", error)
            self._trouble = error.message
        except Exception:
            LOG.exception("the planner's lease could not be looked after; trying on")

    def _look(self) -> None:
        if self._stop.is_set():
            return
        if self._acting is None:
            if self._lease.try_acquire():
                self._act()
        elif not self._lease.renew():
            LOG.error("lost the planner's lease to %s: standing by", self.holder)
            self._step_down()

    def _act(self) -> None:
        planner = Planner(self.settings, fence=self._lease.check, is_open=lambda: self._lease.is_held)
        try:
            planner.start()
            self._lease.renew()  # starting takes its time
        except BaseException:  # another try makes another planner
            planner.close()
            raise
        self._acting = (planner, create_app(planner))
        LOG.info("acting as the planner")

    def _release(self) -> None:
        try:
            self._lease.release()
        except LoadmasterError as error:
            LOG.info("the planner's lease could not be given back: %s", error)

    def _step_down(self) -> None:
        acting, self._acting = self._acting, None
        if acting is not None:
            acting[0].close()


def _lock_of(settings: PlannerSettings) -> StateLock | None:
    try:
        return StateLock(settings.state_dir)
    except ConflictError as error:  # the lease decides who acts; a held lock only proves that no former holder lives
        LOG.info("%s", error)
        return None
