"""Watches the share of bad rows among a source's last 1,000.

# N = rows, B = bad rows
"""

from __future__ import annotations

import numpy as np

from loadmaster_flight.wire.schemas import Verdict

from .rows import VERDICT, RowTable

WINDOW_ROWS = 1000
LEAST_BAD_ROWS = 20


class BadRows:
    """Places of bad rows, as counts of the source's rows before them since the stream began.

    Attributes:
        paused_at: Index in the feed's buffer of the first bad row that is one too many; None: all is well.
    """

    def __init__(self, max_ratio: float, num_rows: int, bad_at: tuple[int, ...]) -> None:
        self._max_ratio = max_ratio
        self._bad_at = np.array(bad_at, np.int64)
        self._consumed = num_rows
        self._arrived = num_rows
        self.paused_at: int | None = None

    def extend(self, rows: RowTable) -> None:
        """Take rows that follow those of before, in the source's order."""
        fresh_B = np.flatnonzero(rows.values_NF[:, VERDICT] == Verdict.BAD) + self._arrived
        self._arrived += len(rows)
        if not len(fresh_B):
            return
        self._bad_at = np.concatenate([self._bad_at, fresh_B])
        if self.paused_at is None:
            self._judge(len(fresh_B))

    def _judge(self, num_fresh: int) -> None:
        """The share can only rise at a bad row, so only these are looked at."""
        at_B = self._bad_at
        first_in_window_B = np.searchsorted(at_B, at_B - (WINDOW_ROWS - 1))
        num_bad_B = np.arange(len(at_B)) - first_in_window_B + 1
        num_rows_B = np.minimum(at_B + 1, WINDOW_ROWS)
        is_over_B = (num_bad_B >= LEAST_BAD_ROWS) & (num_bad_B > self._max_ratio * num_rows_B)
        over = np.flatnonzero(is_over_B[-num_fresh:])
        if len(over):
            self.paused_at = int(at_B[-num_fresh:][over[0]]) - self._consumed

    def forgive(self) -> None:
        """Let the bad rows go up to the one that was too many; those that follow are judged afresh."""
        if self.paused_at is None:
            return
        self._bad_at = self._bad_at[self._bad_at > self.paused_at + self._consumed]
        self.paused_at = None
        if len(self._bad_at):
            self._judge(len(self._bad_at))

    def describe(self, rows: RowTable) -> str:
        """How many, and the last reasons, for the message of a pause."""
        assert self.paused_at is not None
        at = self.paused_at + self._consumed
        num_bad = int(((self._bad_at <= at) & (self._bad_at > at - WINDOW_ROWS)).sum())
        num_rows = min(at + 1, WINDOW_ROWS)
        seen = slice(0, self.paused_at + 1)
        is_bad_N = rows.values_NF[seen, VERDICT] == Verdict.BAD
        reasons = list(dict.fromkeys(str(reason) for reason in rows.reasons_N[seen][is_bad_N][-3:]))
        return f"{num_bad} of the last {num_rows} rows are bad ({num_bad / num_rows:.3f}), the last: {reasons}"

    def recent(self, num_rows: int) -> tuple[int, ...]:
        """Bad rows among the last 1,000 when `num_rows` rows are consumed."""
        at_B = self._bad_at
        if not len(at_B):
            return ()
        return tuple(at_B[(at_B < num_rows) & (at_B >= num_rows - WINDOW_ROWS)].tolist())

    def consume(self, num: int) -> None:
        """The feed has dropped the first `num` rows of its buffer."""
        self._consumed += num
        if len(self._bad_at):
            self._bad_at = self._bad_at[self._bad_at >= self._consumed - WINDOW_ROWS]
        if self.paused_at is not None:
            self.paused_at -= num
