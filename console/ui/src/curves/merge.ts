import type { Curve } from "./curve";
import { curveIn, fieldsOf, isRetired, type Schedule, sameField, sourceOf, withCurve } from "./schedule";

export type Side = "mine" | "theirs";

/** How a field comes out of a three-way merge. */
export type Fate = "mine" | "theirs" | "both alike" | "conflict";

export interface MergedField {
  readonly field: string;
  readonly fate: Fate;
}

export interface Merge {
  readonly schedule: Schedule;
  readonly fields: readonly MergedField[];
  /** Fields that both changed, each in its own way, and that nobody has decided. */
  readonly undecided: readonly string[];
}

/**
 * Bring what `mine` changed since `base` onto `theirs`: the planner's rule, shown before it is asked for.
 *
 * Fields that one side alone changed, or both alike, merge by themselves; of a conflict mine is taken until decided.
 */
export function merge(
  base: Schedule,
  mine: Schedule,
  theirs: Schedule,
  choices: Readonly<Record<string, Side>> = {},
): Merge {
  const fields: MergedField[] = [];
  let schedule = theirs;
  for (const field of fieldsOf(base, mine, theirs)) {
    const fate = fateOf(base, mine, theirs, field);
    if (fate === null) continue;
    fields.push({ field, fate });
    const takesMine = fate === "mine" || (fate === "conflict" && choices[field] !== "theirs");
    if (takesMine) schedule = withField(schedule, field, mine);
  }
  const undecided = fields.filter((each) => each.fate === "conflict" && choices[each.field] === undefined);
  return { schedule, fields, undecided: undecided.map((each) => each.field) };
}

function fateOf(base: Schedule, mine: Schedule, theirs: Schedule, field: string): Fate | null {
  const iChanged = !sameField(base, mine, field);
  const theyChanged = !sameField(base, theirs, field);
  if (iChanged && theyChanged) return sameField(mine, theirs, field) ? "both alike" : "conflict";
  return iChanged ? "mine" : theyChanged ? "theirs" : null;
}

/** The schedule with one field as another schedule has it. */
export function withField(schedule: Schedule, field: string, from: Schedule): Schedule {
  const source = sourceOf(field);
  const curve = curveIn(from, field);
  if (source === null) return withCurve(schedule, field, curve as Curve);
  const { [source]: _gone, ...others } = schedule.weights;
  const weights = curve === undefined ? others : { ...others, [source]: curve };
  const retired = schedule.retired.filter((name) => name !== source);
  return { ...schedule, weights, retired: isRetired(from, source) ? [...retired, source].sort() : retired };
}
