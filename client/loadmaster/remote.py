"""A stream's batches from a planner's constructors: a thread reads ahead and finds its way again after failures."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.control import JoinReply, StreamView, TicketReply, TicketRequest
from loadmaster_flight.wire.errors import (
    DeadlineError,
    GoneError,
    InternalError,
    LoadmasterError,
    MovedError,
    NotReadyError,
    RetryableError,
    UnauthenticatedError,
    UnavailableError,
)
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.frames import Frame, FrameFlag
from loadmaster_flight.wire.http import PlannerClient, retrying
from loadmaster_flight.wire.skipping import Skip
from loadmaster_flight.wire.suspects import SuspectReporter
from loadmaster_flight.wire.tracing import StepPlace, record_step
from loadmaster_flight.wire.waiting import PLANNER_URL
from loadmaster_flight.wire.watchdog import ReadWatchdog, answers

from .acknowledge import Acknowledger
from .feed import FeedItem, JoinOptions, require_fetching
from .joining import find_run, join
from .ticketing import TicketAhead

HEALTH_S = 1.0
"""A constructor that does not say that it lives within this time is gone."""
MAX_HEALTH_S = 16.0
"""The same after several that were not, without a step between: then the machine is busy, or the network slow."""
MAX_PAUSE_S = 2.0
MAX_READY_PAUSE_S = 0.2
CLOSE_S = 5.0
LAST_ASK_S = 1.0
REJOIN = "start again from your last checkpoint: connect(..., resume=state)"


class RemoteFeed:
    """`BatchFeed` over Flight. Joining and reading happen in a thread of its own, which `close` ends."""

    def __init__(self, options: JoinOptions) -> None:
        self._options = options
        self._planner = PlannerClient(options.target, tls=options.tls)
        self._stop, self._changed = threading.Event(), threading.Condition()
        self._ready: deque[FeedItem] = deque()
        self._failure: LoadmasterError | None = None
        self._is_over, self._is_suspect = False, False
        self._nonce = secrets.token_hex(8)
        self._info: JoinReply | None = None
        self._source_names: list[str] = []
        self._run_name = options.run or ""
        self._waiting_for = "joining"
        self._position, self._skip = options.step, Skip.of(options.skip)
        self._watchdog: ReadWatchdog | None = None
        self._constructor, self._health_s, self._asked_ns = "", HEALTH_S, time.time_ns()
        self._ahead = TicketAhead(self._ticket)
        self._suspects = SuspectReporter(self._planner, by=lambda: f"rank {options.rank}")
        self._acknowledger = Acknowledger(
            f"loadmaster-ack-rank{options.rank}", self._suspect, find=self._find, tls=options.tls
        )
        name = f"loadmaster-read-rank{options.rank}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def run(self) -> str:
        """Name of the run; waits for joining."""
        _ = self.info
        return self._run_name

    @property
    def info(self) -> JoinReply:
        """What joining found out; waits for it."""
        with self._changed:
            # Joining has the deadline itself, and says more.
            self._changed.wait_for(lambda: self._info or self._failure, self._options.timeout_s + CLOSE_S)
            if self._info is not None:
                return self._info
            raise self._failure or self._too_late()

    def source_names(self, num: int) -> list[str]:
        """Names of the first `num` sources or more: the planner is asked where some were added since joining.

        Raises:
            LoadmasterError: It does not answer within `timeout_s`, or does not know them.
        """
        if num > len(self._source_names):
            path = f"/runs/{self._run_name}/streams/{self._options.stream}"
            view = retrying(
                lambda: self._planner.get(path, StreamView), deadline_s=self._options.timeout_s, stop=self._stop
            )
            self._source_names = view.source_names
        if num > len(self._source_names):
            raise InternalError(f"run {self._run_name}: a batch has source {num - 1}, of {len(self._source_names)}")
        return self._source_names

    def next_step(self) -> FeedItem | None:
        """The next step; None after the stream's last one.

        Raises:
            DeadlineError: It did not come within `timeout_s`; names rank, step and what was missing. Fetching goes on.
            GoneError: The generation is over, even where batches are left: the other ranks do not go on with them.
            LoadmasterError: It will not come.
        """
        _ = self.info
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._failure or self._is_over, self._options.timeout_s)
            if isinstance(self._failure, GoneError):
                raise self._failure
            if self._ready:
                item = self._ready.popleft()
                self._changed.notify_all()
                return item
            if self._is_over:
                return None
            raise self._failure or self._too_late()

    def acknowledge(self, step: int, *, wait_s: float = 0.0) -> None:
        """The steps before `step` are consumed; sent by a thread, repeated until it arrives."""
        self._acknowledger.acknowledge(step, wait_s=wait_s)

    def close(self, *, in_peace: bool = True) -> None:
        """End both threads. Idempotent; the last acknowledgement is sent if the planner says where to, in 10 s at most.

        Args:
            in_peace: The constructor is told that this rank closed its stream, and did not die.
        """
        self._stop.set()
        with self._changed:
            self._failure = self._failure or UnavailableError("the stream is closed")
            self._changed.notify_all()
            watchdog = self._watchdog
        if watchdog is not None:
            watchdog.cancel()
        self._acknowledger.close(in_peace=in_peace)
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def _too_late(self) -> DeadlineError:
        o = self._options
        return DeadlineError(
            f"rank {o.rank}: step {self._position} of stream {o.stream} of run {self._run_name} did not come within"
            f" {o.timeout_s:g} s: {self._waiting_for}"
        )

    def _run(self) -> None:
        try:
            self._join()
            require_fetching(self.info)
            self._read_all()
        except LoadmasterError as error:
            self._fail(error)
        except Exception as error:
            self._fail(InternalError(f"{type(error).__name__} while reading: {error}"))
        finally:
            self._ahead.join(LAST_ASK_S)
            self._planner.close()

    def _join(self) -> None:
        self._run_name = find_run(self._planner, self._options, self._stop)
        info = join(self._planner, self._run_name, self._options, self._stop, nonce=self._nonce)
        self._asked_ns = time.time_ns()
        with self._changed:
            self._skip = Skip.of(info.skip)
            self._info, self._position, self._waiting_for = info, self._skip.past(info.first_step), "the first batch"
            self._changed.notify_all()

    def _read_all(self) -> None:
        pause_s = 0.05
        while not self._stop.is_set() and not self._is_over:
            before = self._position
            try:
                self._read_window()
            except LoadmasterError as error:
                if not error.retry and not isinstance(error, UnauthenticatedError):
                    raise
                self._waiting_for = error.message
                self._ahead.drop()
                if isinstance(error, (UnavailableError, DeadlineError)) and self._constructor:
                    hangs = isinstance(error, DeadlineError)
                    self._suspects.report(self._constructor, error.message, hangs)
                    self._health_s = min(2 * self._health_s, MAX_HEALTH_S) if hangs else HEALTH_S
                # What is only not there yet comes with a heartbeat of the constructor: no need to ask ever less often.
                longest_s = MAX_READY_PAUSE_S if isinstance(error, (NotReadyError, MovedError)) else MAX_PAUSE_S
                pause_s = 0.05 if self._position > before else min(pause_s * 1.6, longest_s)
                self._stop.wait(pause_s)

    def _read_window(self) -> None:
        """Read one ticket's steps; returns at the end of its window or of the stream."""
        self._constructor = ""
        ticket = self._ahead.take(self._position) or self._ticket(self._position)
        self._constructor = ticket.address
        self._acknowledger.send_to(ticket.address, ticket.ticket_hex)
        with _naming(ticket.address), FlightPeer(ticket.address, tls=self._options.tls) as peer:
            peer.action(Action.HEALTH, timeout_s=self._health_s)  # opening a stream has no deadline of its own
            reader = peer.open(bytes.fromhex(ticket.ticket_hex))
            what = f"constructor {ticket.address}"
            with ReadWatchdog(reader, what=what, is_there=lambda: self._is_there(ticket.address)) as watchdog:
                with self._changed:
                    self._watchdog = watchdog
                try:
                    self._read_messages(watchdog, ticket.last_step)
                finally:
                    with self._changed:
                        self._watchdog = None

    def _is_there(self, address: str) -> bool:
        """Whether a constructor that sends nothing lives; where it does not say so at once, the planner looks too."""
        if answers(address, timeout_s=self._health_s / 4, tls=self._options.tls):
            return True
        arguments = (address, "it neither sends nor answers", True)
        threading.Thread(target=self._suspects.report, args=arguments, name="suspect", daemon=True).start()
        return answers(address, timeout_s=self._health_s * 3 / 4, tls=self._options.tls)

    def _ticket(self, first_step: int) -> TicketReply:
        assert self._info is not None
        request = TicketRequest(
            generation=self._info.generation,
            rank=self._options.rank,
            first_step=first_step,
            nonce=self._nonce,
        )
        path = f"/runs/{self._run_name}/streams/{self._options.stream}/tickets"
        return self._planner.post(path, request, TicketReply)

    def _find(self) -> tuple[str, str]:
        """Who serves this rank by now."""
        ticket = self._ticket(self._position)
        return ticket.address, ticket.ticket_hex

    def _read_messages(self, watchdog: ReadWatchdog, last_step: int) -> None:
        """Take what comes, to the end of the window; from the middle on the next one's ticket is asked for."""
        middle = (self._position + last_step) // 2
        while not self._stop.is_set():
            try:
                batch, metadata = watchdog.read()
            except StopIteration:
                raise UnavailableError(f"the stream broke off before step {self._position}") from None
            frame = Frame.unpack(metadata)
            if frame.flags & FrameFlag.HEARTBEAT:
                self._waiting_for = frame.text
            elif frame.flags & FrameFlag.WINDOW_END:
                return
            elif frame.flags & FrameFlag.STREAM_END:
                self._end()
                return
            else:
                self._take(frame, batch)
                if self._position > middle:
                    self._ahead.want(self._skip.past(last_step))

    def _take(self, frame: Frame, batch: pa.RecordBatch | None) -> None:
        if batch is None or frame.step != self._position:
            raise InternalError(f"expected step {self._position}, the constructor sent {frame.step}")
        place = StepPlace(self._run_name, self._options.stream, frame.generation, frame.step)
        record_step("fetch", place, self._asked_ns, rank=self._options.rank)
        with self._changed:
            self._ready.append(FeedItem(step=frame.step, batch=batch))
            self._position = self._skip.after(self._position)
            self._waiting_for, self._health_s = "the next batch", HEALTH_S
            self._changed.notify_all()
        self._wait_for_room()
        self._asked_ns = time.time_ns()

    def _wait_for_room(self) -> None:
        """Until the trainer takes a batch; where nobody hears its acknowledgements, ask whether it goes on at all."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._has_room() or self._is_suspect)
                if self._has_room():
                    return
                self._is_suspect = False
            with contextlib.suppress(RetryableError):
                self._ticket(self._position)

    def _has_room(self) -> bool:
        return len(self._ready) < max(1, self._options.prefetch) or self._stop.is_set()

    def _suspect(self) -> None:
        with self._changed:
            self._is_suspect = True
            self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _fail(self, error: LoadmasterError) -> None:
        message = error.message.replace(PLANNER_URL, self._options.target)
        if isinstance(error, GoneError):
            message = f"{message}; {REJOIN}"
        if message != error.message:
            error = type(error)(message, **error.details)
        place = f"rank {self._options.rank}, step {self._position}"
        error.add_note(place + (f", run {self._run_name}" if self._run_name else ""))
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()


@contextlib.contextmanager
def _naming(address: str) -> Iterator[None]:
    """What may be tried again says which constructor it was about."""
    try:
        yield
    except RetryableError as error:
        name = f"constructor {address}"
        message = error.message if error.message.startswith(name) else f"{name}: {error.message}"
        raise type(error)(message, **error.details) from error
