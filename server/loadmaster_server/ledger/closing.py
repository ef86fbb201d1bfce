"""Closing the accounts at a checkpoint: all that was drawn before it is planned, left out by a verdict, or queued."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from loadmaster_flight.wire.errors import LoadmasterError

from ..planning import pieces as p
from ..planning.feed import SourceState
from ..planning.state import PlannerState
from .accounts import LOST, Accounts, BlockAccount, EpochAccount, Finding
from .ranges import UNKNOWN, Place
from .spans import Spans


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows that the journal leaves out.

    Attributes:
        by_block: (source, shard, block) -> for each such row, the epoch from which on it is left out.
        by_source: Source -> the same of all its blocks, ascending.
    """

    by_block: Mapping[tuple[int, int, int], list[int]]
    by_source: Mapping[int, list[int]]

    @staticmethod
    def of(by_block: Mapping[tuple[int, int, int], list[int]]) -> LeftOut:
        """Of the journal's rows by block."""
        by_source: dict[int, list[int]] = defaultdict(list)
        for (source, _, _), epochs in by_block.items():
            by_source[source] += epochs
        return LeftOut(by_block, {source: sorted(epochs) for source, epochs in by_source.items()})

    def num_in(self, source: int, epoch: int) -> int:
        """How many rows of a source an epoch leaves out."""
        return bisect_right(self.by_source.get(source, []), epoch)


MAX_TOLD = 100
"""Samples of one block that are named one by one."""
MAX_STEP = 1 << 62


@dataclass(slots=True)
class Queued:
    """What waits of one block: per position the tokens, and how many the sample has; `drawn_at` is the first draw."""

    drawn_at: int = MAX_STEP
    tokens: dict[int, Spans] = field(default_factory=lambda: defaultdict(Spans))
    sample_tokens: dict[int, int] = field(default_factory=dict)


Queue = dict[Place, Queued]


def queue_of(state: PlannerState) -> dict[tuple[int, int], Queue]:
    """The queue of a planner's state: (source, epoch) -> what waits by block."""
    queues: dict[tuple[int, int], Queue] = defaultdict(lambda: defaultdict(Queued))
    columns = (p.SOURCE, p.EPOCH, p.LANE, p.SHARD, p.BLOCK, p.POS, p.FIRST, p.TOKENS, p.SAMPLE_TOKENS, p.DRAWN_AT)
    for *place, pos, first, tokens, sample_tokens, drawn_at in state.queue.values_NP[:, columns].tolist():
        queued = queues[place[0], place[1]][Place(*place)]
        queued.drawn_at = min(queued.drawn_at, drawn_at)
        queued.tokens[pos].add(first, first + tokens)
        queued.sample_tokens[pos] = sample_tokens
    return queues


def close(accounts: Accounts, state: PlannerState, left_out: LeftOut) -> Iterator[Finding]:
    """Compare the accounts with where the planner stood before `state.step`, and let go of what is complete.

    Args:
        accounts: All steps below `state.step` are entered, and no other.
        state: The planner's own checkpoint.
        left_out: The journal.
    """
    queues = queue_of(state)
    for key in queues:
        accounts.epochs.setdefault(key, EpochAccount())
    for (source, epoch), account in sorted(accounts.epochs.items()):
        closing = _Closing(account, source, epoch, state, queues.get((source, epoch), {}), left_out)
        expected = _expected(state.sources[source], source, epoch, left_out)
        yield from closing.run(expected)
        if closing.is_complete(expected):
            accounts.done[source].add(epoch, epoch + 1)
            del accounts.epochs[source, epoch]


def _expected(state: SourceState, source: int, epoch: int, left_out: LeftOut) -> int | None:
    """Samples of an epoch that were consumed; None where it is not known.

    The planner counts the epoch it stands in and the last whole one. Older ones have the same rows but for what was
    left out by then; that does not hold where a row was too long once and is not any more, which the last one shows.
    """
    if epoch >= state.epoch:
        return state.counted.num_samples if epoch == state.epoch else 0
    whole, counts = (state.epoch, state.counted) if state.is_exhausted else (state.epoch - 1, state.learned)
    if counts is None:
        return None
    if epoch == whole:
        return counts.num_samples
    is_alike = counts.num_rows - left_out.num_in(source, whole) == counts.num_samples
    return counts.num_rows - left_out.num_in(source, epoch) if is_alike else None


class _Closing:
    """One epoch of one source."""

    def __init__(
        self, account: EpochAccount, source: int, epoch: int, state: PlannerState, queue: Queue, left_out: LeftOut
    ) -> None:
        self._account, self._source, self._epoch = account, source, epoch
        self._step, self._state = state.step, state.sources[source]
        self._queue, self._left_out = queue, left_out
        self._queued_only, self._heads, self._told = 0, 0, 0
        self._is_open = False

    def run(self, expected: int | None) -> Iterator[Finding]:
        for place, queued in self._queue.items():
            lane_account, key = self._account.lanes[place.lane], (place.shard, place.block)
            if key not in lane_account.open and key not in lane_account.closed:
                lane_account.begin(key, queued.drawn_at)
        for lane, (shard, block), account in self._account.blocks():
            yield from self._close_block(Place(self._source, self._epoch, lane, shard, block), account)
        self._account.told += self._told
        if expected is not None and (missing := self._missing(expected)):
            self._account.told += missing
            yield Finding(LOST, self._step, self._words(missing, expected))

    def _missing(self, expected: int) -> int:
        """Samples that have not been told of; negative: too many. What was told and has come since is taken back."""
        missing = expected - (self._account.num_samples + self._queued_only - self._heads) - self._account.told
        back = max(0, min(-missing, self._account.told))
        self._account.told -= back
        return missing + back

    def is_complete(self, expected: int | None) -> bool:
        """Nothing of the epoch can come any more."""
        is_over = self._state.epoch > self._epoch or self._state.is_exhausted
        return is_over and not self._is_open

    def _close_block(self, place: Place, block: BlockAccount) -> Iterator[Finding]:
        queued = self._queue.get(place, Queued())
        yield from self._check_cut(place, block, queued)
        waiting = Spans((pos, pos + 1) for pos in sorted(queued.tokens))
        self._count_queued(block, queued)
        covered = block.seen.joined(waiting)
        num_gaps = covered.top - covered.size
        num_left_out = sum(epoch <= self._epoch for epoch in self._left_out.by_block.get(place.shard_key, ()))
        excess = num_gaps - num_left_out - block.told
        if excess > 0:
            block.told += excess
            self._told += excess
            yield from self._lost(place, covered, num_gaps, excess)
        if self._can_close(place, block, queued):
            lane = self._account.lanes[place.lane]
            lane.closed[place.shard, place.block] = lane.open.pop((place.shard, place.block)).seen.top
        elif queued.tokens or block.cut:
            self._is_open = True

    def _can_close(self, place: Place, block: BlockAccount, queued: Queued) -> bool:
        is_left = self._account.lanes[place.lane].newest > block.begun_at or self._state.epoch > self._epoch
        return is_left and not queued.tokens and not block.cut

    def _count_queued(self, block: BlockAccount, queued: Queued) -> None:
        for pos, tokens in queued.tokens.items():
            if pos not in block.seen:
                self._queued_only += 1
                self._heads += self._is_head(tokens, queued.sample_tokens[pos])

    def _check_cut(self, place: Place, block: BlockAccount, queued: Queued) -> Iterator[Finding]:
        """A sample that is planned in part goes on in the queue, or is the one that its source stands in."""
        for pos, sample in list(block.cut.items()):
            tokens = sample.tokens.joined(queued.tokens.get(pos, Spans()))
            sample_tokens = queued.sample_tokens.get(pos, sample.sample_tokens)
            if self._is_head(tokens, sample_tokens):
                self._heads += 1
                self._is_open = True
                continue
            is_unknown = sample_tokens == UNKNOWN
            for low, high in tokens.gaps(tokens.top if is_unknown else sample_tokens):
                text = f"its tokens {low} to {high} are in no step before {self._step} and do not wait"
                yield Finding(LOST, self._step, text, place, pos, low)
            if pos not in queued.tokens:
                del block.cut[pos]

    def _is_head(self, tokens: Spans, sample_tokens: int) -> bool:
        state = self._state
        is_like_it = tokens.is_from_zero and tokens.size == state.head_offset
        return state.head_offset > 0 and is_like_it and sample_tokens in (state.head_tokens, UNKNOWN)

    def _lost(self, place: Place, covered: Spans, num_gaps: int, excess: int) -> Iterator[Finding]:
        positions = [pos for low, high in covered.gaps(covered.top) for pos in range(low, high)]
        text = f"it was drawn before step {self._step}, is in no step, has no verdict and does not wait"
        if excess < num_gaps:
            rest = f"{excess} of the {num_gaps} positions {positions[:MAX_TOLD]} of {place.words}"
            yield Finding(LOST, self._step, f"{rest} have no verdict, are in no step and do not wait")
            return
        for pos in positions[:MAX_TOLD]:
            yield Finding(LOST, self._step, text, place, pos)
        if len(positions) > MAX_TOLD:
            yield Finding(LOST, self._step, f"{len(positions) - MAX_TOLD} more of {place.words}: {text}")

    def _words(self, missing: int, expected: int) -> str:
        where = f"source {self._source} epoch {self._epoch}"
        if missing < 0:
            return f"{where}: {-missing} more samples are planned or wait than the {expected} that were drawn"
        open_ends = [
            f"{Place(self._source, self._epoch, lane, *key).words} behind position {block.seen.top - 1}"
            for lane, key, block in self._account.blocks()
        ]
        hint = f"; at the end of a block, such as {'; '.join(open_ends[:4])}" if open_ends else ""
        return (
            f"{where}: {missing} of the {expected} samples drawn before step {self._step} are in no step and do not "
            f"wait{hint}"
        )


def checked(state: bytes) -> PlannerState | str:
    """A checkpoint's state, or why it cannot be read."""
    try:
        return PlannerState.from_bytes(state)
    except LoadmasterError as error:
        return error.message
