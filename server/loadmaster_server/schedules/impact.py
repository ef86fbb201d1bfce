"""The answer to a preview: what a schedule does to each source, beside what happens without it."""

from __future__ import annotations

from collections.abc import Iterator

from loadmaster_flight.spec import RunSpec, ScheduleSpec, revised
from loadmaster_flight.wire.errors import BadRequestError

from ..store import Timeline
from .merge import changed_fields
from .preview import Forecast, Plan, Stock, forecast, step_tokens
from .schemas import ForecastView, PreviewReply, SourcePreview
from .stocks import Known

JUMP = 0.1
"""A share that changes by more than this from one step to the next is said to jump."""
GROWTH = 2.0
"""So does a step that has more than so many times the tokens of the one before."""


def impact(
    spec: RunSpec, timeline: Timeline, schedule: ScheduleSpec, known: Known, from_step: int, until_step: int,
    max_repeats: float | None,
) -> PreviewReply:  # fmt: skip
    """Compare both futures.

    Raises:
        BadRequestError: `until_step` is not after `from_step`.
    """
    if until_step <= from_step:
        raise BadRequestError(f"until_step must be after at_step {from_step}, got {until_step}")
    stretches = [(step, revised(spec, revision.schedule)) for step, revision in timeline.stretches()]
    before = Plan(stretches=tuple(stretches))
    kept = [stretch for stretch in stretches if stretch[0] < from_step]
    after = Plan(stretches=(*kept, (from_step, revised(spec, schedule))))
    futures = [
        forecast(plan, known.stocks, known.first, until_step, fill=known.fill, max_repeats=max_repeats)
        for plan in (before, after)
    ]
    sources = [_source(*each) for each in zip(known.stocks, *futures, strict=True)]
    return PreviewReply(
        from_step=from_step,
        until_step=until_step,
        changed=changed_fields(timeline.newest.schedule, schedule),
        sources=sources,
        warnings=[*_overtaken(timeline, from_step), *_jumps(before, after, from_step), *_ends(sources, max_repeats)],
    )


def _source(stock: Stock, before: Forecast, after: Forecast) -> SourcePreview:
    return SourcePreview(
        source=stock.name,
        epoch_tokens=None if stock.epoch_tokens is None else round(stock.epoch_tokens),
        is_estimated=stock.is_estimated,
        before=_view(before),
        after=_view(after),
    )


def _view(f: Forecast) -> ForecastView:
    return ForecastView(tokens=round(f.tokens), epochs=f.epochs, dry_step=f.dry_step, repeats_step=f.repeats_step)


def _overtaken(timeline: Timeline, from_step: int) -> Iterator[str]:
    for revision in timeline.revisions:
        if revision.from_step > from_step and timeline.at(revision.from_step) is revision:
            yield f"revision {revision.number}, which begins at step {revision.from_step}, is overtaken before that"


def _jumps(before: Plan, after: Plan, step: int) -> Iterator[str]:
    was, now = _shares(before.at(step), step), _shares(after.at(step), step)
    for name in now:
        if abs(now[name] - was[name]) > JUMP:
            yield f"the share of {name} jumps from {was[name]:.0%} to {now[name]:.0%} at step {step}"
    tokens, grown = (step_tokens(plan.at(step).batch, step) for plan in (before, after))
    if grown > GROWTH * tokens:
        yield f"a step grows from {tokens:,} to {grown:,} tokens at step {step}"


def _shares(spec: RunSpec, step: int) -> dict[str, float]:
    ramps = spec.mixture.weights
    value = {name: ramps[name].at(step) if name in ramps else 0.0 for name in spec.sources}
    whole = sum(value.values()) or 1.0
    return {name: v / whole for name, v in value.items()}


def _ends(sources: list[SourcePreview], max_repeats: float | None) -> Iterator[str]:
    for source in sources:
        if source.after.dry_step is not None:
            yield f"{source.source} runs dry at step {source.after.dry_step}"
        if source.after.repeats_step is not None:
            yield f"{source.source} is served more than {max_repeats:g} times from step {source.after.repeats_step} on"
