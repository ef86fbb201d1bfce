"""How every rank of each stream is, as columns: what a screen of thousands of ranks is made of.

# W = ranks, T = steps that are remembered
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.control import RankReport, StreamProgress

from ..store import GenerationKey, StreamKey

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
KEPT_STEPS = 256
CLOCK_SLACK_S = 1.0
"""Two words of one rank that differ by less are equally new, as in `RankWatch`."""
MAX_RANKS = 1 << 16


@dataclass(slots=True)
class Board:
    """What is known of the ranks of one generation. Times are monotonic seconds; nan: not known.

    Attributes:
        wait_WT: Shape (W, T), float32, seconds that each rank waited for a step; step t is in column t % T.
        step_T: Shape (T,), int64, which step each column holds.
    """

    generation: int
    acknowledged_W: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    seen_W: Float64Array = field(default_factory=lambda: np.zeros(0))
    moved_W: Float64Array = field(default_factory=lambda: np.zeros(0))
    is_heard_W: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    has_left_W: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    last_wait_W: Float32Array = field(default_factory=lambda: np.zeros(0, np.float32))
    wait_WT: Float32Array = field(default_factory=lambda: np.zeros((0, KEPT_STEPS), np.float32))
    step_T: Int64Array = field(default_factory=lambda: np.full(KEPT_STEPS, -1, np.int64))
    host: dict[int, str] = field(default_factory=dict)

    def reach(self, num_ranks: int) -> None:
        """Have room for that many ranks."""
        more = num_ranks - len(self.seen_W)
        if more <= 0:
            return
        self.acknowledged_W = np.append(self.acknowledged_W, np.zeros(more, np.int64))
        self.seen_W, self.moved_W = (np.append(a, np.full(more, np.nan)) for a in (self.seen_W, self.moved_W))
        self.is_heard_W, self.has_left_W = (
            np.append(a, np.zeros(more, bool)) for a in (self.is_heard_W, self.has_left_W)
        )
        self.last_wait_W = np.append(self.last_wait_W, np.full(more, np.nan, np.float32))
        self.wait_WT = np.vstack([self.wait_WT, np.full((more, KEPT_STEPS), np.nan, np.float32)])

    def take(self, report: RankReport, now_s: float) -> None:
        """Take a constructor's word in; what it knows less of than another one before is left as it is."""
        rank_N = np.asarray(report.ranks, np.int64)
        if not len(rank_N) or rank_N.min() < 0 or rank_N.max() >= MAX_RANKS:
            return
        self.reach(int(rank_N.max()) + 1)
        seen_N, moved_N = (now_s - np.asarray(told, np.float64) for told in (report.seen_s, report.moved_s))
        is_heard_N = ~np.isin(rank_N, report.unheard)
        before_N = self.is_heard_W[rank_N]
        is_newer_N = ~(seen_N < self.seen_W[rank_N] - CLOCK_SLACK_S)  # nothing known yet is nan: newer
        new_N = np.where(is_heard_N == before_N, is_newer_N, is_heard_N)
        at = rank_N[new_N]
        self.acknowledged_W[at] = np.asarray(report.acknowledged, np.int64)[new_N]
        self.seen_W[at], self.moved_W[at] = seen_N[new_N], moved_N[new_N]
        self.is_heard_W[at], self.has_left_W[at] = is_heard_N[new_N], np.isin(rank_N, report.left)[new_N]
        self._take_waits(report)
        for host, ranks in report.hosts.items():
            self.host |= dict.fromkeys(ranks, host)

    def _take_waits(self, report: RankReport) -> None:
        rank_N, step_N = np.asarray(report.wait_rank, np.int64), np.asarray(report.wait_step, np.int64)
        wait_N = np.asarray(report.wait_s, np.float32)
        ok_N = (rank_N >= 0) & (rank_N < len(self.seen_W)) & (step_N >= 0)
        rank_N, step_N, wait_N = rank_N[ok_N], step_N[ok_N], wait_N[ok_N]
        for step in np.unique(step_N).tolist():
            column = step % KEPT_STEPS
            if self.step_T[column] > step:
                continue
            if self.step_T[column] < step:
                self.step_T[column] = step
                self.wait_WT[:, column] = np.nan
            here_N = step_N == step
            self.wait_WT[rank_N[here_N], column] = wait_N[here_N]
        order = np.argsort(step_N, kind="stable")
        self.last_wait_W[rank_N[order]] = wait_N[order]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSnapshot:
    """The ranks of a generation at a moment. Ages are seconds, nan: not known.

    Attributes:
        wait_WT: Shape (W, steps), float32, of `step_T`, ascending.
    """

    acknowledged_W: Int64Array
    seen_s_W: Float64Array
    moved_s_W: Float64Array
    is_heard_W: BoolArray
    has_left_W: BoolArray
    last_wait_W: Float32Array
    wait_WT: Float32Array
    step_T: Int64Array
    host: Mapping[int, str]

    def waits(self, first: int, last: int) -> Float32Array:
        """The columns of the steps [first, last), (W, steps)."""
        keep_T = (self.step_T >= first) & (self.step_T < last)
        return self.wait_WT[:, keep_T]


NOBODY = RankSnapshot(
    acknowledged_W=np.zeros(0, np.int64),
    seen_s_W=np.zeros(0),
    moved_s_W=np.zeros(0),
    is_heard_W=np.zeros(0, bool),
    has_left_W=np.zeros(0, bool),
    last_wait_W=np.zeros(0, np.float32),
    wait_WT=np.zeros((0, 0), np.float32),
    step_T=np.zeros(0, np.int64),
    host={},
)
"""Of a stream that nobody joined yet."""


class RankBoards:
    """Boards of the newest generation of each stream. Any thread may use it; in memory alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._boards: dict[StreamKey, Board] = {}

    def note(self, reports: Iterable[StreamProgress], *, now_s: float | None = None) -> None:
        """Take in what a constructor's heartbeat says."""
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            for report in reports:
                key = StreamKey(run=report.run, stream=report.stream)
                board = self._boards.get(key)
                if board is None or board.generation < report.generation:
                    board = self._boards[key] = Board(report.generation)
                if board.generation == report.generation:
                    board.take(report.ranks, now_s)

    def snapshot(self, key: GenerationKey, num_ranks: int, *, now_s: float | None = None) -> RankSnapshot:
        """The ranks [0, num_ranks) of a generation, as far as they are known."""
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            board = self._boards.get(key.stream_key)
            if board is None or board.generation != key.generation:
                board = Board(key.generation)
            board.reach(num_ranks)
            order = np.argsort(board.step_T)
            order = order[board.step_T[order] >= 0]
            seen_W = board.seen_W[:num_ranks]
            return RankSnapshot(
                acknowledged_W=board.acknowledged_W[:num_ranks].copy(),
                seen_s_W=now_s - seen_W,
                moved_s_W=now_s - board.moved_W[:num_ranks],
                is_heard_W=board.is_heard_W[:num_ranks].copy(),
                has_left_W=board.has_left_W[:num_ranks].copy(),
                last_wait_W=board.last_wait_W[:num_ranks].copy(),
                wait_WT=board.wait_WT[:num_ranks, order],
                step_T=board.step_T[order],
                host=dict(board.host),
            )

    def keep(self, streams: Collection[StreamKey]) -> None:
        """Forget all other streams."""
        with self._lock:
            for key in self._boards.keys() - set(streams):
                del self._boards[key]
