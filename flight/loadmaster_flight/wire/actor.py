"""The link of a loader or constructor to the planner: it registers, heartbeats, and hands on the desired state."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from .control import (
    HeartbeatReply,
    HeartbeatRequest,
    Lease,
    RegisterReply,
    RegisterRequest,
    Role,
    SourceReport,
    StreamProgress,
)
from .errors import ConflictError, GoneError, LoadmasterError, NotFoundError, NotReadyError
from .http import PlannerClient, retrying
from .tls import Tls

LOG = logging.getLogger(__name__)
CALL_TIMEOUT_S = 10.0
MAX_PAUSE_S = 1.0
LEAVING_BEAT_S = 0.2
DEAF_S = 2.0
"""Who is about to leave waits no longer for a planner that does not answer."""
T = TypeVar("T")
_FORGOTTEN = (NotFoundError, ConflictError, GoneError)  # the planner does not know us, or holds us for another life


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorReport:
    """What a process says of itself in a heartbeat: see `HeartbeatRequest`."""

    acknowledged: list[StreamProgress] = field(default_factory=list)
    stats: dict[str, float] = field(default_factory=dict)
    warm: list[Lease] = field(default_factory=list)
    sources: list[SourceReport] = field(default_factory=list)


class ActorLink:
    """Keeps one process registered with the planner, for ever, through restarts of either side.

    The link's thread calls `report` before and `on_desired` after each heartbeat, never two at a time; neither may
    block for longer than a lease, and what they raise is logged and counted, never fatal. All other methods may be
    called by any thread.

    Args:
        planner_url: `http://host:port`.
        role: What the process is.
        address: Its own Flight address, `grpc://host:port`.
        on_desired: Takes each answer; the process reconciles to it.
        report: What to send with the next heartbeat.
        capacity_bytes: Budget that the planner may count on.
        tls: Whom to trust and what to show; None: what the environment says.
    """

    def __init__(
        self,
        planner_url: str,
        *,
        role: Role,
        address: str,
        on_desired: Callable[[HeartbeatReply], None],
        report: Callable[[], ActorReport] = ActorReport,
        capacity_bytes: int = 0,
        tls: Tls | None = None,
    ) -> None:
        self._tls = tls
        self.planner = PlannerClient(planner_url, timeout_s=CALL_TIMEOUT_S, tls=tls)
        self.incarnation = secrets.token_hex(8)
        self.num_callback_errors = 0
        self._hello = RegisterRequest(
            role=role, address=address, incarnation=self.incarnation, pid=os.getpid(), capacity_bytes=capacity_bytes
        )
        self._on_desired, self._report = on_desired, report
        self._reply: RegisterReply | None = None
        self._lease_until_s = 0.0
        self._registered, self._stop, self._wake = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="planner-link", daemon=True)
        self._complained = False
        self._is_leaving, self._beaten = False, threading.Condition()
        self._desired: HeartbeatReply | None = None
        self._beaten_s = 0.0

    @property
    def actor_id(self) -> str:
        """Our name with the planner; changes when it has forgotten us."""
        return self._known().actor_id

    @property
    def ticket_key(self) -> bytes:
        """The key that tickets are checked with: ask for it at each use, a registration may change it."""
        return bytes.fromhex(self._known().ticket_key_hex)

    @property
    def is_registered(self) -> bool:
        return self._registered.is_set()

    @property
    def has_lease(self) -> bool:
        """Whether the planner has heard of us within `lease_s`, so that what it gave us is still ours."""
        return time.monotonic() < self._lease_until_s

    @property
    def is_cut_off(self) -> bool:
        """Whether our lease ended a whole lease ago: if the planner is there, others have what it gave us."""
        lapses_s = self._lease_until_s
        return self._reply is not None and 0 < lapses_s < time.monotonic() - self._reply.lease_s

    def start(self) -> None:
        """Begin to register and heartbeat; returns at once."""
        self._thread.start()

    def wait_registered(self, timeout_s: float) -> bool:
        """Wait for the first registration; False when it did not come in time."""
        return self._registered.wait(timeout_s)

    @property
    def heartbeat_s(self) -> float:
        """How often we report, and so how soon everybody knows what has changed."""
        return self._known().heartbeat_s

    def beat(self) -> None:
        """Heartbeat now instead of at the end of the pause."""
        self._wake.set()

    def drain(self, deadline_s: float) -> bool:
        """Have the planner give what we own to others, who are warm by then; what we have is served meanwhile.

        Returns:
            Whether others have all of it. False at the deadline, and when the planner does not answer.
        """
        until_s = time.monotonic() + deadline_s
        with self._beaten:
            self._is_leaving, self._desired, self._beaten_s = True, None, time.monotonic()
        while self._registered.is_set() and not self._stop.is_set():
            self._wake.set()
            with self._beaten:
                self._beaten.wait_for(self._is_free, LEAVING_BEAT_S)
                if self._is_free():
                    return True
                now_s = time.monotonic()
                if now_s > until_s or now_s - self._beaten_s > DEAF_S:
                    return False
        return False

    def _is_free(self) -> bool:
        owns = self._desired is None or self._desired.assignments or not all(x.is_standby for x in self._desired.leases)
        return not owns

    def close(self, *, leave: bool = True) -> None:
        """Stop, and with `leave` tell the planner so that leases are free at once. Idempotent, at most about 2 s."""
        first = not self._stop.is_set()
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        if first and leave and self._reply is not None:
            self._say_goodbye(self._reply.actor_id)

    def _known(self) -> RegisterReply:
        if self._reply is None:
            raise NotReadyError(f"{self._hello.role} {self._hello.address} is not registered with the planner yet")
        return self._reply

    def _run(self) -> None:
        is_known, pause_s = False, 0.05
        while not self._stop.is_set():
            try:
                if not is_known:
                    self._register()
                    is_known = True
                self._heartbeat()
                pause_s = 0.05
                self._pause(self._known().heartbeat_s)
            except Exception as error:  # whatever a planner answers, the link must live on
                is_known = False  # it may have restarted, with another key: register again, which is idempotent
                self._complain(error)
                self._pause(0.0 if isinstance(error, _FORGOTTEN) and pause_s <= 0.05 else pause_s)
                pause_s = min(pause_s * 1.6, MAX_PAUSE_S)
        self.planner.close()

    def _register(self) -> None:
        self._reply = self.planner.post("/actors", self._hello, RegisterReply)
        self._registered.set()

    def _heartbeat(self) -> None:
        reply = self._known()
        report = self._called(self._report) or ActorReport()
        is_leaving = self._is_leaving
        beat = HeartbeatRequest(
            incarnation=self.incarnation,
            acknowledged=report.acknowledged,
            stats=report.stats,
            warm=report.warm,
            is_leaving=is_leaving,
            sources=report.sources,
        )
        path = f"/actors/{reply.actor_id}/heartbeat"
        sent_s = time.monotonic()
        # The second try is for a kept connection that the planner has closed meanwhile.
        desired = retrying(lambda: self.planner.post(path, beat, HeartbeatReply), deadline_s=0.2, stop=self._stop)
        self._lease_until_s = sent_s + reply.lease_s
        if self._complained:
            LOG.info("planner %s answers again", self.planner.url)
            self._complained = False
        self._called(lambda: self._on_desired(desired))
        if is_leaving:
            with self._beaten:
                self._desired, self._beaten_s = desired, time.monotonic()
                self._beaten.notify_all()

    def _called(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except Exception:
            self.num_callback_errors += 1
            LOG.exception("the %s could not follow the planner's answer", self._hello.role)
            return None

    def _complain(self, error: Exception) -> None:
        if not self._complained and not self._stop.is_set():
            LOG.warning("planner %s: %s; trying on", self.planner.url, error)
            self._complained = True

    def _pause(self, pause_s: float) -> None:
        self._wake.wait(pause_s)
        self._wake.clear()

    def _say_goodbye(self, actor_id: str) -> None:
        planner = PlannerClient(self.planner.url, timeout_s=1.0, tls=self._tls)
        try:
            planner.request("DELETE", f"/actors/{actor_id}")
        except LoadmasterError as error:
            LOG.info("could not take leave of the planner: %s", error)
        finally:
            planner.close()
