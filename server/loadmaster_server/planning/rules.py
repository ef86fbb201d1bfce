"""What a stream's steps must look like, read off the run spec once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from loadmaster_flight.spec import BatchSpec, Knot, Layout, OnExhausted, OverLong, Ramp, RunSpec
from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.wire.errors import MeshError, NotFoundError

from .limits import LengthLimits
from .mixture import shares_at
from .place_tree import ClientPlaceTree

MAX_BINS = 1 << 16
GOAL_OCCUPANCY = 0.993
OVERDRAW_LEVELS = (1, 2, 4, 8, 16)
MORE_LEVELS = (32, 64, 128)
SEVERAL_BINS = 8
_MAX_STEPS_CHECKED = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """One step's caps: `num_bins` bins of `rows` rows of `row_len` tokens; a piece is padded to `align`.

    Long pieces wait up to `max_age` steps for others like them (outliers.py); None: they do not. Samples with media are
    never cut, so they must fit the rows of all later steps, too, as they may be queued: `least_row_len` is the shortest
    of these and this one; None: `row_len`.
    """

    step: int
    num_bins: int
    row_len: int
    rows: int
    align: int
    layout: Layout
    skips_long: bool
    overdraw: float
    max_age: int | None = None
    least_row_len: int | None = None

    @property
    def limits(self) -> LengthLimits:
        """Longest samples that are served."""
        text = self.row_len if self.skips_long else None
        return LengthLimits(text=text, media=self.row_len if self.least_row_len is None else self.least_row_len)

    @property
    def capacity(self) -> int:
        """C: tokens of one bin."""
        return self.row_len * self.rows

    @property
    def is_full_at(self) -> int:
        """Aligned tokens (layout pad: pieces) that a step should place."""
        if self.layout is Layout.PAD:
            return self.num_bins * self.rows
        return int(self.num_bins * self.capacity * GOAL_OCCUPANCY)

    @property
    def draw_levels(self) -> list[int]:
        """Aligned tokens (layout pad: pieces) that queue and draw must reach together.

        Best fit may need more choice than the first overdraw gives, where pieces are few and long: the next level
        is drawn only if the step is not full yet.
        """
        if self.layout is Layout.PAD:
            return [self.num_bins * self.rows]
        whole = self.num_bins * self.capacity
        if self.layout is Layout.CONCAT:
            return [whole]
        levels = OVERDRAW_LEVELS + MORE_LEVELS * self.has_several_bins
        return [whole + int(whole * self.overdraw * times) for times in levels]

    @property
    def has_several_bins(self) -> bool:
        """A step may draw as much as another one holds, and pieces wait twice for its sake: not where bins are few,
        because pieces as long as a bin would wait for longer.
        """
        return self.num_bins >= SEVERAL_BINS


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRules:
    """When a source ends, and how much bad content it may have. `max_epochs` None: it never ends."""

    name: str
    max_epochs: int | None
    on_exhausted: OnExhausted
    max_bad_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """The part of a run spec that decides a stream's membership."""

    stream: str
    sources: tuple[SourceRules, ...]
    weights: tuple[Ramp | None, ...]
    counts_samples: bool
    batch: BatchSpec
    fixed_bins: int | None
    max_steps: int | None
    max_tokens: int | None
    fixed_shares: tuple[int, ...] | None

    def shape_at(self, step: int) -> StepShape:
        """Caps of a step. An evaluation pass has the sizes of step 0 throughout."""
        at, delay = 0 if self.fixed_bins is not None else step, self.batch.outlier_delay
        return StepShape(
            step=step,
            num_bins=self.fixed_bins or self.batch.num_bins_at(at),
            row_len=self.batch.row_len_at(at),
            rows=self.batch.rows,
            align=self.batch.align,
            layout=self.batch.layout,
            skips_long=self.batch.over_long is OverLong.SKIP,
            overdraw=self.batch.overdraw,
            max_age=delay.max_age_steps if delay is not None else None,
            least_row_len=self._least_row_len_from(at),
        )

    def _least_row_len_from(self, step: int) -> int:
        """Between two knots a curve has no value that is less than both of theirs."""
        later = [knot.at for knot in self.batch.seq_len.knots if knot.at > step and self.fixed_bins is None]
        return min(self.batch.row_len_at(at) for at in (step, *later))

    def shares_at(self, step: int) -> list[int]:
        """Relative integer shares of the sources at a step, exhausted ones included."""
        return list(self.fixed_shares) if self.fixed_shares is not None else shares_at(self.weights, step)


def rules_of(spec: RunSpec, stream: str) -> StreamRules:
    """Rules of the train stream, or of an evaluation pass: equal shares, each sample once, short last step.

    Raises:
        NotFoundError: The spec has no such stream.
    """
    if stream == TRAIN:
        return _train_rules(spec)
    if stream not in spec.evaluation:
        raise NotFoundError(f"run {spec.run} has no stream {stream!r}; streams are {spec.stream_names}")
    return _evaluation_rules(spec, stream)


def _train_rules(spec: RunSpec) -> StreamRules:
    weights = tuple(spec.mixture.weights.get(name) for name in spec.source_names)
    return StreamRules(
        stream=TRAIN,
        sources=tuple(_train_source(spec, name) for name in spec.source_names),
        weights=weights,
        counts_samples=spec.mixture.unit == "samples",
        batch=spec.batch,
        fixed_bins=None,
        max_steps=spec.until.steps,
        max_tokens=spec.until.tokens,
        fixed_shares=_fixed_shares(weights),
    )


def _train_source(spec: RunSpec, name: str) -> SourceRules:
    """`until.epochs` ends a source like max_epochs, but peacefully: the others take its share."""
    source, epochs = spec.sources[name], spec.until.epochs
    ends_with_run = epochs is not None and (source.max_epochs is None or source.max_epochs >= epochs)
    return SourceRules(
        name=name,
        max_epochs=epochs if ends_with_run else source.max_epochs,
        on_exhausted=OnExhausted.RENORMALIZE if ends_with_run else source.on_exhausted,
        max_bad_ratio=source.max_bad_ratio,
    )


def _evaluation_rules(spec: RunSpec, stream: str) -> StreamRules:
    evaluation, equal = spec.evaluation[stream], Ramp(knots=(Knot(at=0, value=1.0),))
    weights = tuple(equal if name in evaluation.sources else None for name in spec.source_names)
    sources = tuple(
        SourceRules(
            name=name,
            max_epochs=1,
            on_exhausted=OnExhausted.RENORMALIZE,
            max_bad_ratio=spec.sources[name].max_bad_ratio,
        )
        for name in spec.source_names
    )
    return StreamRules(
        stream=stream,
        sources=sources,
        weights=weights,
        counts_samples=False,
        batch=spec.batch,
        fixed_bins=evaluation.microbatches or spec.batch.num_bins_at(0),
        max_steps=None,
        max_tokens=None,
        fixed_shares=_fixed_shares(weights),
    )


def _fixed_shares(weights: tuple[Ramp | None, ...]) -> tuple[int, ...] | None:
    """Shares of a mixture that no step changes, so that hundreds of curves are evaluated once."""
    if any(ramp is not None and len(ramp.knots) > 1 for ramp in weights):
        return None
    return tuple(shares_at(weights, 0))


def check_bins(rules: StreamRules, dp: int, step: int) -> None:
    """Check that every dp rank gets the same number of microbatches at a step.

    Raises:
        MeshError: It does not; names G, dp and the step.
    """
    num_bins = rules.shape_at(step).num_bins
    if num_bins % dp:
        raise MeshError(f"dp must divide the microbatches of a step, got {num_bins} % {dp} at step {step}")
    if num_bins > MAX_BINS:
        raise MeshError(f"a step must have at most {MAX_BINS} microbatches, got {num_bins} at step {step}")


def check_mesh(rules: StreamRules, tree: ClientPlaceTree) -> None:
    """Check that the stream's steps can be dealt to a mesh and cut for its ranks: G % dp wherever G changes (of
    slopes, 100,000 steps in all; plan_next checks every step again), align % (2*cp) and C % (2*cp*tp).

    Raises:
        MeshError: They cannot; names the rule and the numbers.
    """
    dp = tree.size("dp")
    knots = rules.batch.microbatches.knots
    check_bins(rules, dp, knots[0].at)
    most = _MAX_STEPS_CHECKED // len(knots)
    for a, b in itertools.pairwise(knots):
        is_flat = a.shape == "step" or a.value == b.value or rules.batch.g_multiple % dp == 0
        steps = () if is_flat else range(a.at, min(b.at, a.at + most))
        for step in (*steps, b.at):
            check_bins(rules, dp, step)
    _check_cuts(rules, cp=tree.size("cp"), tp=tree.size("tp"))


def _check_cuts(rules: StreamRules, *, cp: int, tp: int) -> None:
    batch = rules.batch
    if cp > 1 and batch.align % (2 * cp):
        raise MeshError(f"2 * cp must divide align, got cp {cp} and align {batch.align}")
    for knot in batch.seq_len.knots if cp * tp > 1 else ():
        capacity = batch.capacity_at(knot.at)
        if capacity % (2 * cp * tp):
            raise MeshError(f"2 * cp * tp must divide seq_len, got cp {cp}, tp {tp} and {capacity} tokens")
