"""Explains a step, or a sample: what is in it, where it lies, and why it is there.

# N = pieces, S = sources
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from loadmaster_flight.wire.errors import BadRequestError, NotFoundError
from loadmaster_flight.wire.ledger import PieceView, SampleView, ShareView, StepView
from loadmaster_flight.wire.step_plan import WHOLE, Pieces, StepPlan
from loadmaster_flight.wire.tls import Tls

from ..planning.fair import ONE
from ..planning.origins import Origins, decode_origins
from ..plans.restoring import Span
from ..store import Definition, PlanRecord, Store, StreamKey
from .log import LineageLog, decoded
from .naming import Asked, SampleId, SampleNames, Shown
from .ranges import UNKNOWN, Place

MAX_IMAGES = 24
"""Pictures of an answer: at most some 200 kB."""
OK, MASKED = "ok", "masked"
DELIVERED, PLANNED, LEFT_OUT = "delivered", "planned", "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which pieces of a step are wanted: all by default.

    Attributes:
        rank: A rank of the mesh: the pieces of its dp rank, and those of which it encodes images.
        microbatch: Of its dp rank, or of all of them.
        has_text: Whether their text is wanted.
        has_images: Whether small pictures of their images are wanted; of one rank or microbatch.
    """

    rank: int | None = None
    microbatch: int | None = None
    has_text: bool = False
    has_images: bool = False


class Explainer:
    """Explains steps of one stream's trained lineage. Used by one thread.

    Raises:
        NotFoundError: No such run or stream, or nobody joined yet.
    """

    def __init__(self, store: Store, key: StreamKey, *, tls: Tls | None = None) -> None:
        self._store, self._key = store, key
        self._definition: Definition = store.runs.definition(key.run)
        self._log = LineageLog(store, key)
        self._names = SampleNames(store, key.run, tls=tls)

    def step(self, step: int, choice: Choice) -> StepView:
        """One step.

        Raises:
            NotFoundError: It is not planned, or the mesh has no such rank or microbatch.
            BadRequestError: Images of a whole step are asked for.
        """
        if choice.has_images and choice.rank is None and choice.microbatch is None:
            raise BadRequestError("images must be asked for with a rank or a microbatch: a step has too many")
        span, record, plan = self._log.step(step)
        keep_N = _chosen(plan, span, choice)
        max_images = MAX_IMAGES if choice.has_images else -1
        return self._view(span, record, plan, np.flatnonzero(keep_N), has_text=choice.has_text, max_images=max_images)

    def sample(self, text: str, *, has_text: bool) -> SampleView:
        """Every step that a sample is in.

        Raises:
            BadRequestError: It is no sample of the run.
            LoadmasterError: No loader can say where it lies in its block's order.
        """
        sample = SampleId.parse(text, self._names.source_names)
        verdict = self._verdict(sample)
        pos = self._names.find(sample)
        steps = self._search(sample, pos, has_text=has_text)
        return SampleView(
            run=self._key.run,
            stream=self._key.stream,
            sample=text,
            steps=steps,
            verdict=verdict,
            searched=steps[-1].step + 1 if steps else self._log.planned,
        )

    def _verdict(self, sample: SampleId) -> str:
        found = self._store.verdicts.of_sample(
            self._key, source=sample.source, shard=sample.shard, block=sample.block, row=sample.row
        )
        named = [v for v in found if v.epoch <= sample.epoch and v.kind != MASKED]
        return f"{named[0].kind.value}: {named[0].reason}" if named else ""

    def _search(self, sample: SampleId, pos: int, *, has_text: bool) -> list[StepView]:
        """Through the log, until all of the sample has come."""
        views, tokens = list[StepView](), 0
        for window in self._log.windows():
            for record in window.records:
                index_N = np.flatnonzero(_is_sample(window.pieces_of(record), sample, pos))
                if not len(index_N):
                    continue
                plan = decoded(record)
                views.append(self._view(window.span, record, plan, index_N, has_text=has_text))
                tokens += sum(piece.num_tokens for piece in views[-1].pieces)
                is_whole = (plan.pieces.num_tokens[index_N] == WHOLE).any()
                if is_whole or tokens >= views[-1].pieces[0].sample_tokens > 0:
                    return views
        return views

    def _view(
        self,
        span: Span,
        record: PlanRecord,
        plan: StepPlan,
        index_N: np.ndarray,
        *,
        has_text: bool,
        max_images: int = -1,
    ) -> StepView:
        origins = decode_origins(record.step, len(plan.pieces), record.summary)
        pieces = _PieceViews(self._definition, self._names, plan, origins, self._credits(origins, index_N))
        masked = self._store.verdicts.masked_reasons(self._key, record.step)
        views = pieces.of(index_N, masked, has_text=has_text, max_images=max_images)
        newest = self._log.newest
        state = DELIVERED if record.step < newest.acknowledged else PLANNED
        return StepView(
            run=self._key.run,
            stream=self._key.stream,
            step=record.step,
            generation=span.key.generation,
            lineage=self._log.words(),
            state=LEFT_OUT if self._log.is_left_out(record.step) else state,
            revision=record.revision,
            digest=record.digest,
            mesh=dict(span.mesh),
            num_bins=plan.num_bins,
            seq_len=plan.seq_len,
            num_tokens=plan.num_tokens,
            num_pieces=len(plan.pieces),
            global_valid_tokens=plan.global_valid_tokens,
            shares=_shares(self._names.source_names, plan, record, origins),
            pieces=views,
            notes=list(self._names.problems),
        )

    def _credits(self, origins: Origins | None, index_N: np.ndarray) -> dict[int, list[int]]:
        """Step -> credits after its draw, for the steps that drew these pieces and those before them."""
        credits: dict[int, list[int]] = {}
        drawn = set() if origins is None else set(np.unique(origins.drawn_N[index_N]).tolist())
        for step in sorted({s for d in drawn for s in (d - 1, d)}):
            try:
                _, record, _ = self._log.step(step)
            except NotFoundError:
                continue
            credits[step] = record.summary.get("origins", {}).get("credit", [])
        return credits


class _PieceViews:
    """Puts pieces of one step into words."""

    def __init__(
        self,
        definition: Definition,
        names: SampleNames,
        plan: StepPlan,
        origins: Origins | None,
        credits: dict[int, list[int]],
    ) -> None:
        self._manifests, self._names = definition.manifests, names
        self._plan, self._origins, self._credits = plan, origins, credits
        self._slot_N = _slots(plan.pieces.bin)
        cut = np.flatnonzero(plan.pieces.num_tokens != WHOLE).tolist()
        lengths = [UNKNOWN] * len(cut) if origins is None else origins.sample_tokens_M.tolist()
        self._sample_tokens = dict(zip(cut, lengths, strict=True))
        self._encoders: dict[int, list[int]] = defaultdict(list)
        for piece, rank in zip(plan.units.piece_U.tolist(), plan.units.rank_U.tolist(), strict=True):
            self._encoders[piece].append(rank)

    def of(
        self,
        index_N: np.ndarray,
        masked: dict[tuple[int, int, int, int, int], str],
        *,
        has_text: bool,
        max_images: int,
    ) -> list[PieceView]:
        """Views in the order of (bin, slot)."""
        bin_N = self._plan.pieces.bin
        order = sorted(index_N.tolist(), key=lambda i: (int(bin_N[i]), int(self._slot_N[i])))
        asked = [self._asked(i) for i in order]
        shown = self._names.shown(asked, has_text=has_text, max_images=max_images)
        return [self._view(i, one, said, masked) for i, one, said in zip(order, asked, shown, strict=True)]

    def _asked(self, i: int) -> Asked:
        p = self._plan.pieces
        place = Place(*(int(getattr(p, name)[i]) for name in Place._fields))
        return place, int(p.pos[i]), int(p.first_token[i])

    def _uri(self, place: Place) -> str:
        """Empty where the manifest has no such shard, which `verify` tells of."""
        shards = self._manifests[place.source].shards
        return shards[place.shard].uri if place.shard < len(shards) else ""

    def _view(self, i: int, asked: Asked, shown: Shown, masked: dict[tuple[int, int, int, int, int], str]) -> PieceView:
        place, pos, first = asked
        p, per_rank = self._plan.pieces, self._plan.bins_per_rank
        num_tokens, sample_tokens = int(p.num_tokens[i]), self._sample_tokens.get(i, shown.num_tokens)
        drawn_at = UNKNOWN if self._origins is None else int(self._origins.drawn_N[i])
        reason = masked.get((place.source, place.epoch, place.shard, place.block, shown.row))
        return PieceView(
            sample=self._names.id(place, pos, first, shown.row),
            source=self._manifests[place.source].name,
            **{name: getattr(place, name) for name in ("epoch", "lane", "shard", "block")},
            pos=pos,
            row=shown.row,
            uri=self._uri(place),
            dp=int(p.bin[i]) // per_rank,
            microbatch=int(p.bin[i]) % per_rank,
            slot=int(self._slot_N[i]),
            first_token=first,
            num_tokens=sample_tokens if num_tokens == WHOLE else num_tokens,
            sample_tokens=sample_tokens,
            drawn_at=drawn_at,
            waited=self._plan.step - drawn_at if drawn_at >= 0 else 0,
            credit_before=self._credit(drawn_at - 1, place.source) if drawn_at > 0 else (0 if drawn_at == 0 else None),
            credit_after=self._credit(drawn_at, place.source),
            verdict=OK if reason is None else MASKED,
            reason=reason or shown.reason or "",
            encoders=self._encoders.get(i, []),
            text=shown.text,
            images=list(shown.images),
            more_images=(shown.num_images or 0) - len(shown.images),
        )

    def _credit(self, step: int, source: int) -> int | None:
        """None where it is not known; a source that was added later had none."""
        credits = self._credits.get(step)
        if not credits:
            return None
        return credits[source] if source < len(credits) else 0


def _slots(bin_N: np.ndarray) -> np.ndarray:
    """Place of each piece among those of its bin, in canonical order: so the documents of a microbatch lie."""
    order_N = np.argsort(bin_N, kind="stable")
    sorted_N = bin_N[order_N]
    slot_N = np.empty(len(bin_N), np.int64)
    slot_N[order_N] = np.arange(len(bin_N)) - np.searchsorted(sorted_N, sorted_N)
    return slot_N


def _chosen(plan: StepPlan, span: Span, choice: Choice) -> np.ndarray:
    keep_N = np.ones(len(plan.pieces), bool)
    if choice.rank is not None:
        dp = _dp_of(span, choice.rank)
        keep_N = plan.pieces.bin // plan.bins_per_rank == dp
        keep_N[plan.units.piece_U[plan.units.rank_U == choice.rank]] = True
    if choice.microbatch is not None:
        if not 0 <= choice.microbatch < plan.bins_per_rank:
            raise NotFoundError(f"microbatch must be in [0, {plan.bins_per_rank}), got {choice.microbatch}")
        keep_N &= plan.pieces.bin % plan.bins_per_rank == choice.microbatch
    return keep_N


def _dp_of(span: Span, rank: int) -> int:
    """The dp coordinate of a rank of the mesh."""
    axes, sizes = list(span.mesh), tuple(span.mesh.values())
    world_size = int(np.prod(sizes))
    if not 0 <= rank < world_size:
        raise NotFoundError(f"rank must be in [0, {world_size}) in generation {span.key.generation}, got {rank}")
    return int(np.unravel_index(rank, sizes)[axes.index("dp")])


def _is_sample(p: Pieces, sample: SampleId, pos: int) -> np.ndarray:
    is_it_N = (p.source == sample.source) & (p.epoch == sample.epoch) & (p.pos == pos)
    return np.asarray(is_it_N & (p.shard == sample.shard) & (p.block == sample.block))


def _shares(names: list[str], plan: StepPlan, record: PlanRecord, origins: Origins | None) -> list[ShareView]:
    placed = record.summary.get("total_tokens", [])
    total, weights = sum(placed), plan.weights_S.tolist()
    sums = max(sum(weights), 1)
    return [
        ShareView(
            source=names[i],
            weight=weight / ONE,
            step_tokens=int(plan.source_tokens_S[i]),
            placed_tokens=placed[i] if i < len(placed) else 0,
            target_tokens=round(total * weight / sums),
            credit=None if origins is None else int(origins.credit_S[i]),
        )
        for i, weight in enumerate(weights)
        if weight or plan.source_tokens_S[i]
    ]
