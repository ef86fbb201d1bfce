"""Names samples as batches name them: the loaders know which row is at a position, the plan log does not."""

from __future__ import annotations

import base64
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from loadmaster_flight.wire.errors import BadRequestError, DeadlineError, LoadmasterError, UnavailableError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.ledger import PictureView
from loadmaster_flight.wire.schemas import SHOWN
from loadmaster_flight.wire.tickets import ShowTicket, sign
from loadmaster_flight.wire.tls import Tls

from ..store import Store
from .ranges import Place

Asked = tuple[Place, int, int]
"""A block, a position in its order, and the first token of the piece."""
CALL_TIMEOUT_S, TICKET_LIFE_S = 20.0, 120.0
AT_ONCE = 512
"""Samples of one call to a loader."""
SAMPLE_ID = re.compile(r"(?P<source>.+)/(?P<shard>\d+)/(?P<block>\d+)/(?P<row>\d+)@(?P<epoch>\d+)(:(?P<first>\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a loader says of a sample; `pos` and `row` are -1 where it cannot say."""

    pos: int = -1
    row: int = -1
    num_tokens: int = -1
    reason: str | None = None
    text: str | None = None
    num_images: int | None = None
    images: tuple[PictureView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleId:
    """A sample as batches name it, `source/shard/block/row@epoch[:first_token]`; `source` is its ordinal."""

    source: int
    shard: int
    block: int
    row: int
    epoch: int

    @staticmethod
    def parse(text: str, source_names: Sequence[str]) -> SampleId:
        """Read one.

        Raises:
            BadRequestError: It is none, or of a source that the run has not.
        """
        match = SAMPLE_ID.fullmatch(text)
        if match is None:
            raise BadRequestError(f"a sample must look like source/shard/block/row@epoch, got {text!r}")
        if match["source"] not in source_names:
            raise BadRequestError(f"source must be one of {list(source_names)}, got {match['source']!r}")
        numbers = {name: int(match[name]) for name in ("shard", "block", "row", "epoch")}
        return SampleId(source=source_names.index(match["source"]), **numbers)


class SampleNames:
    """Asks loaders, each once a sample; where none answers, samples go by their position. Used by one thread.

    Args:
        store: Says who has which source, and has the ticket key.
        run: Whose samples.
        tls: How to call loaders; None: what the environment says.

    Attributes:
        problems: Why some samples could not be named.
    """

    def __init__(self, store: Store, run: str, *, tls: Tls | None = None) -> None:
        self._store, self._run, self._tls = store, run, tls
        self.source_names = [manifest.name for manifest in store.runs.definition(run).manifests]
        self.problems: list[str] = []
        self._silent: dict[str, LoadmasterError] = {}

    def of(self, asked: Sequence[Asked]) -> list[str]:
        """The ids of some pieces."""
        return [self.id(*one, shown.row) for one, shown in zip(asked, self.shown(asked), strict=True)]

    def id(self, place: Place, pos: int, first: int, row: int) -> str:
        """`source/shard/block/row@epoch`, with the position where the row is not known."""
        name = self.source_names[place.source] if place.source < len(self.source_names) else str(place.source)
        number = str(row) if row >= 0 else f"pos {pos}"
        return f"{name}/{place.shard}/{place.block}/{number}@{place.epoch}" + (f":{first}" if first else "")

    def shown(self, asked: Sequence[Asked], *, has_text: bool = False, max_images: int = -1) -> list[Shown]:
        """What the loaders say, in the order asked for; with at most so many pictures, of the first samples."""
        groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for i, (place, _, _) in enumerate(asked):
            groups[place.source, place.epoch, place.lane].append(i)
        answers = [Shown()] * len(asked)
        for (source, epoch, lane), members in groups.items():
            for start in range(0, len(members), AT_ONCE):
                part = members[start : start + AT_ONCE]
                places = [[asked[i][0].shard, asked[i][0].block, asked[i][1]] for i in part]
                try:
                    found = self._ask(
                        source, epoch, lane, places, by_row=False, has_text=has_text, max_images=max_images
                    )
                except LoadmasterError as error:
                    self._note(source, error)
                    break
                if max_images > 0:
                    max_images -= sum(len(shown.images) for shown in found)
                for i, shown in zip(part, found, strict=True):
                    answers[i] = shown
        return answers

    def find(self, sample: SampleId) -> int:
        """The position of a sample in its block's order.

        Raises:
            BadRequestError: The block has no such row.
            LoadmasterError: No loader could say.
        """
        places = [[sample.shard, sample.block, sample.row]]
        shown = self._ask(sample.source, sample.epoch, 0, places, by_row=True, has_text=False)[0]
        if shown.pos < 0:
            raise BadRequestError(f"there is no row {sample.row}: {shown.reason}")
        return shown.pos

    def _note(self, source: int, error: LoadmasterError) -> None:
        name = self.source_names[source] if source < len(self.source_names) else str(source)
        problem = f"source {name}: which rows these are cannot be told: {error.message}"
        if problem not in self.problems:
            self.problems.append(problem)

    def _ask(
        self,
        source: int,
        epoch: int,
        lane: int,
        places: list[list[int]],
        *,
        by_row: bool,
        has_text: bool,
        max_images: int = -1,
    ) -> list[Shown]:
        owners = self._store.actors.partition_owners(self._run, source)
        if not owners:
            raise BadRequestError(f"no loader has a source {source} of run {self._run}")
        slots = next(iter(owners.values()))[0]
        _, address = owners.get(lane % slots) or next(iter(owners.values()))
        ticket = ShowTicket(
            run=self._run,
            source=source,
            epoch=epoch,
            places=places,
            by_row=by_row,
            has_text=has_text,
            max_images=max_images,
            expires_at=time.time() + TICKET_LIFE_S,
        )
        table = self._read(address, ticket)
        if not table.schema.equals(SHOWN) or table.num_rows != len(places):
            raise BadRequestError(f"loader {address} must answer with {len(places)} rows of SHOWN, got {table.schema}")
        rows = table.select(["pos", "row", "num_tokens", "reason", "text", "num_images", "images"]).to_pylist()
        return [Shown(**row | {"images": tuple(_picture(**one) for one in row["images"] or ())}) for row in rows]

    def _read(self, address: str, ticket: ShowTicket) -> pa.Table:
        """A loader that once had no answer is not waited for again."""
        if address in self._silent:
            raise self._silent[address]
        try:
            with FlightPeer(address, tls=self._tls) as peer:
                return peer.read_all(sign(ticket, self._store.ticket_key), timeout_s=CALL_TIMEOUT_S)
        except (DeadlineError, UnavailableError) as error:
            self._silent[address] = error
            raise


def _picture(jpeg: bytes, width: int, height: int) -> PictureView:
    src = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
    return PictureView(src=src, width=width, height=height)
