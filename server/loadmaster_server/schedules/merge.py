"""Three-way merge of schedules, by source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from loadmaster_flight.spec import Ramp, ScheduleSpec

SIZES = ("microbatches", "seq_len")
WEIGHTS = "weights."


class Side(StrEnum):
    """Whose value a conflict is resolved to."""

    MINE = "mine"
    THEIRS = "theirs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One field of a schedule: a curve (None: the source has no weight), and whether the source is retired."""

    ramp: Ramp | None
    is_retired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A field that both sides changed, each in its own way. `field`: `weights.SOURCE`, `microbatches` or `seq_len`."""

    field: str
    base: Entry
    mine: Entry
    theirs: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """The merged schedule, with mine where nothing else was chosen, and the conflicts that nobody has decided."""

    schedule: ScheduleSpec
    conflicts: tuple[Conflict, ...]


def merge(
    base: ScheduleSpec, mine: ScheduleSpec, theirs: ScheduleSpec, choices: Mapping[str, Side] | None = None
) -> Merge:
    """Bring what `mine` changed since `base` onto `theirs`.

    A source is one field: its curve, and whether it is retired. Fields that one side alone changed, or both alike,
    merge by themselves.

    Args:
        choices: Field -> side, for conflicts; those of fields without a conflict have no effect.
    """
    before, ours, other = (entries(schedule) for schedule in (base, mine, theirs))
    nothing, merged, conflicts = Entry(ramp=None), dict[str, Entry](), []
    for field in sorted(before.keys() | ours.keys() | other.keys()):
        was, my, their = (side.get(field, nothing) for side in (before, ours, other))
        is_conflict = my not in (was, their) and their != was
        side = (choices or {}).get(field) if is_conflict else None
        merged[field] = their if my == was or side is Side.THEIRS else my
        if is_conflict and side is None:
            conflicts.append(Conflict(field=field, base=was, mine=my, theirs=their))
    return Merge(schedule=_schedule(merged), conflicts=tuple(conflicts))


def changed_fields(before: ScheduleSpec, after: ScheduleSpec) -> list[str]:
    """Names of the fields in which two schedules differ, sorted."""
    a, b = entries(before), entries(after)
    return sorted(field for field in a.keys() | b.keys() if a.get(field) != b.get(field))


def entries(schedule: ScheduleSpec) -> dict[str, Entry]:
    """The fields of a schedule."""
    sizes = {name: Entry(ramp=getattr(schedule, name)) for name in SIZES}
    names = {*schedule.weights, *schedule.retired}
    sources = {
        WEIGHTS + name: Entry(ramp=schedule.weights.get(name), is_retired=name in schedule.retired) for name in names
    }
    return sizes | sources


def _schedule(fields: Mapping[str, Entry]) -> ScheduleSpec:
    sources = {name.removeprefix(WEIGHTS): entry for name, entry in fields.items() if name.startswith(WEIGHTS)}
    return ScheduleSpec.model_validate(
        {
            "weights": {name: entry.ramp for name, entry in sources.items() if entry.ramp is not None},
            "retired": [name for name, entry in sources.items() if entry.is_retired],
            **{name: fields[name].ramp for name in SIZES},
        }
    )
