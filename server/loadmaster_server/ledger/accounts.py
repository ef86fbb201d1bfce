"""What of each source has been planned so far, position by position; memory follows what is open, not the steps.

A lane's rows are drawn block after block and position after position, and every sample is served once an epoch. So what
a step draws must lie behind what the steps before it drew, and nothing may come twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .ranges import UNKNOWN, CutPiece, Place, Stretch
from .spans import Spans

LOST, REPEATED, DISORDER, LOG = "lost", "repeated", "disorder", "log"
NOWHERE = -1


class Finding(NamedTuple):
    """A fault before it is put into words. `place` is None, or `pos` NOWHERE, where it is of no one sample."""

    kind: str
    step: int
    text: str
    place: Place | None = None
    pos: int = NOWHERE
    first: int = 0


@dataclass(slots=True)
class CutAccount:
    """A sample of which a part is planned."""

    sample_tokens: int
    tokens: Spans = field(default_factory=Spans)

    @property
    def is_whole(self) -> bool:
        return self.tokens.is_from_zero and self.tokens.size == self.sample_tokens


@dataclass(slots=True)
class BlockAccount:
    """A block that is not done with.

    Attributes:
        begun_at: First step that drew from it, as far as is known.
        drawn: Behind the last position drawn.
        drawn_at: The step that drew that; `drawn_before` is both without that step.
        seen: Positions that are planned, cut samples from their first piece on.
        cut: Samples that are planned in part, by position.
        told: Missing positions that were reported.
    """

    begun_at: int
    drawn: int = 0
    drawn_at: int = UNKNOWN
    drawn_before: tuple[int, int] = (0, UNKNOWN)
    seen: Spans = field(default_factory=Spans)
    cut: dict[int, CutAccount] = field(default_factory=dict)
    told: int = 0


@dataclass(slots=True)
class LaneAccount:
    """Blocks of a lane in one epoch.

    Attributes:
        open: Those that something may still come from.
        closed: Positions of those that are done with.
        newest: Last step at which a block was begun; `before` is the same without the step that is being taken.
    """

    open: dict[tuple[int, int], BlockAccount] = field(default_factory=dict)
    closed: dict[tuple[int, int], int] = field(default_factory=dict)
    newest: int = UNKNOWN
    before: int = UNKNOWN

    def begin(self, key: tuple[int, int], step: int) -> BlockAccount:
        """Open a block that is drawn from for the first time."""
        if step > self.newest:
            self.before, self.newest = self.newest, step
        return self.open.setdefault(key, BlockAccount(begun_at=step))


@dataclass(slots=True)
class EpochAccount:
    """One epoch of one source. `num_samples` are planned, at least in part; `told` of them are reported as missing."""

    lanes: dict[int, LaneAccount] = field(default_factory=lambda: defaultdict(LaneAccount))
    num_samples: int = 0
    told: int = 0

    def blocks(self) -> Iterator[tuple[int, tuple[int, int], BlockAccount]]:
        """(lane, (shard, block), account) of all that is open."""
        for lane, account in self.lanes.items():
            for key, block in list(account.open.items()):
                yield lane, key, block


class Accounts:
    """The accounts of one stream. `take` its steps in order; see `closing.close` for what is missing."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[int, int], EpochAccount] = {}
        self.done: dict[int, Spans] = defaultdict(Spans)
        """Epochs of each source that are complete."""
        self.num_samples = 0
        self.num_cut = 0

    def take(self, step: int, stretches: list[Stretch], cut_pieces: list[CutPiece]) -> Iterator[Finding]:
        """Enter a step."""
        for stretch in stretches:
            yield from self._take_whole(step, stretch)
        for piece in cut_pieces:
            yield from self._take_cut(step, piece)

    def _block(self, place: Place, drawn_at: int) -> tuple[EpochAccount, BlockAccount] | str:
        """The account of a block, or in what it is closed already."""
        if place.epoch in self.done[place.source]:
            return f"epoch {place.epoch} was served in full before"
        epoch = self.epochs.setdefault((place.source, place.epoch), EpochAccount())
        lane, key = epoch.lanes[place.lane], (place.shard, place.block)
        if key in lane.closed:
            return f"the {lane.closed[key]} positions of its block were served before"
        found = lane.open.get(key)
        return epoch, lane.begin(key, drawn_at) if found is None else found

    def _take_whole(self, step: int, stretch: Stretch) -> Iterator[Finding]:
        place, start, stop, drawn_at = stretch
        found = self._block(place, step if drawn_at == UNKNOWN else drawn_at)
        if isinstance(found, str):
            yield Finding(REPEATED, step, found, place, start)
            return
        epoch, block = found
        again = block.seen.add(start, stop)
        for low, high in again:
            for pos in range(low, high):
                yield Finding(REPEATED, step, "it was planned before", place, pos)
        num_new = stop - start - sum(high - low for low, high in again)
        epoch.num_samples += num_new
        self.num_samples += num_new
        if not again:
            yield from _in_order(step, stretch, epoch.lanes[place.lane], block)

    def _take_cut(self, step: int, piece: CutPiece) -> Iterator[Finding]:
        place, pos = piece.place, piece.pos
        found = self._block(place, step if piece.drawn_at == UNKNOWN else piece.drawn_at)
        if isinstance(found, str):
            yield Finding(REPEATED, step, found, place, pos, piece.first)
            return
        epoch, block = found
        if pos not in block.cut:
            if block.seen.add(pos, pos + 1):
                yield Finding(REPEATED, step, "all of it was planned before", place, pos, piece.first)
                return
            epoch.num_samples += 1
            self.num_samples += 1
            self.num_cut += 1
            block.cut[pos] = CutAccount(sample_tokens=piece.sample_tokens)
            yield from _in_order(step, Stretch(place, pos, pos + 1, piece.drawn_at), epoch.lanes[place.lane], block)
        sample = block.cut[pos]
        for low, high in sample.tokens.add(piece.first, piece.stop):
            yield Finding(REPEATED, step, f"its tokens {low} to {high} were planned before", place, pos, piece.first)
        if sample.is_whole:
            del block.cut[pos]


def _in_order(step: int, stretch: Stretch, lane: LaneAccount, block: BlockAccount) -> Iterator[Finding]:
    """What a step draws lies behind all that was drawn before; what waited in the queue may lie anywhere."""
    place, start, stop, drawn_at = stretch
    if drawn_at == step:
        if block.drawn_at != step:
            block.drawn_before, block.drawn, block.drawn_at = (block.drawn, block.drawn_at), 0, step
        drawn, drawn_at = block.drawn_before
        later = lane.before if lane.newest == step else lane.newest
        if start < drawn:
            text = f"drawn at step {step}, after position {drawn - 1} of its block was drawn at step {drawn_at}"
            yield Finding(DISORDER, step, text, place, start)
        elif block.begun_at < later:
            text = f"drawn at step {step}, after a block behind its own was begun at step {later}"
            yield Finding(DISORDER, step, text, place, start)
        block.drawn = max(block.drawn, stop)
    elif stop > block.drawn:
        block.drawn, block.drawn_at = stop, max(drawn_at, block.drawn_at)
