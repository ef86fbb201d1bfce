import { clamp } from "../ui/clamp";
import { type Curve, constant, type Knot, type Shape, valueAt } from "./curve";
import { curveIn, isRetired, type Schedule, sourceOf, weightAt, weightField, withCurve } from "./schedule";

/** A knot by its place: knots have no names, and a field has one knot a step at most. */
export interface KnotRef {
  readonly field: string;
  readonly at: number;
}

/** What an edit must keep to. `firstFree`: the first step that can still be changed. */
export interface Limits {
  readonly firstFree: number;
  readonly lastStep: number;
}

export function sameRef(a: KnotRef, b: KnotRef): boolean {
  return a.field === b.field && a.at === b.at;
}

/** A knot before the first free step belongs to the past: it cannot move. */
export function isPast(knot: { at: number }, limits: Limits): boolean {
  return knot.at < limits.firstFree;
}

/** The knot itself; undefined where it is gone. */
export function knotOf(schedule: Schedule, ref: KnotRef): Knot | undefined {
  return curveIn(schedule, ref.field)?.find((knot) => knot.at === ref.at);
}

/** Steps to which a knot may go: between its neighbours, never into the past. */
export function roomOf(curve: Curve, at: number, limits: Limits): [number, number] {
  const index = curve.findIndex((knot) => knot.at === at);
  const before = curve[index - 1];
  const after = curve[index + 1];
  const low = Math.max(limits.firstFree, before === undefined ? 0 : before.at + 1);
  return [low, Math.max(low, after === undefined ? limits.lastStep : after.at - 1)];
}

/** Move a knot; it stays between its neighbours and out of the past, and no value falls below 0. */
export function moveKnot(curve: Curve, at: number, to: { at?: number; value?: number }, limits: Limits): Curve {
  const knot = curve.find((each) => each.at === at);
  if (knot === undefined || isPast(knot, limits)) return curve;
  const [low, high] = roomOf(curve, at, limits);
  const moved: Knot = {
    ...knot,
    at: clamp(Math.round(to.at ?? knot.at), low, high),
    value: Math.max(0, finite(to.value, knot.value)),
  };
  return curve.map((each) => (each.at === at ? moved : each));
}

/** Add a knot that lies on the curve unless a value is given; it goes on in the shape that the curve has there. */
export function addKnot(curve: Curve, at: number, limits: Limits, value?: number): Curve {
  const step = Math.round(at);
  if (step < limits.firstFree || curve.some((knot) => knot.at === step)) return curve;
  const before = curve.filter((knot) => knot.at < step).at(-1);
  const added: Knot = {
    at: step,
    value: Math.max(0, value ?? valueAt(curve, step)),
    shape: before?.shape ?? "step",
  };
  return [...curve, added].sort((a, b) => a.at - b.at);
}

/** Remove a knot; the last one of a curve and those of the past stay. */
export function removeKnot(curve: Curve, at: number, limits: Limits): Curve {
  if (curve.length === 1 || at < limits.firstFree) return curve;
  return curve.filter((knot) => knot.at !== at);
}

/** Change the way from a knot to the next one. */
export function shapeKnot(curve: Curve, at: number, shape: Shape, limits: Limits): Curve {
  if (at < limits.firstFree) return curve;
  return curve.map((knot) => (knot.at === at ? { ...knot, shape } : knot));
}

/** Move several knots by the same way; where one of them cannot go, none does. */
export function moveKnots(
  schedule: Schedule,
  refs: readonly KnotRef[],
  by: { at: number; value: number },
  limits: Limits,
): { schedule: Schedule; refs: KnotRef[] } {
  const moved = refs.map((ref) => ({ ...ref, at: ref.at + by.at }));
  let after = schedule;
  for (const field of new Set(refs.map((ref) => ref.field))) {
    const steps = new Set(refs.filter((ref) => ref.field === field).map((ref) => ref.at));
    const curve = shifted(curveIn(after, field) ?? [], steps, by, limits);
    if (curve === null) return { schedule, refs: [...refs] };
    after = withCurve(after, field, curve);
  }
  return { schedule: after, refs: moved };
}

function shifted(curve: Curve, steps: Set<number>, by: { at: number; value: number }, limits: Limits): Curve | null {
  const moved = curve.map((knot) => {
    if (!steps.has(knot.at)) return knot;
    return { ...knot, at: knot.at + by.at, value: Math.max(0, knot.value + by.value) };
  });
  const isAllowed = curve.every(
    (knot, i) => !steps.has(knot.at) || (!isPast(knot, limits) && !isPast(moved[i] as Knot, limits)),
  );
  const isAscending = moved.every((knot, i) => i === 0 || (moved[i - 1] as Knot).at < knot.at);
  return isAllowed && isAscending ? moved : null;
}

/**
 * Let the other sources keep their shares as a source's weight at a step is changed to make `share` of the whole.
 *
 * Only the source's own knot changes: weights are relative, so w = share / (1 - share) x the sum of the others.
 * Returns null where that has no answer: the others have no weight, or the share is 1.
 */
export function weightForShare(schedule: Schedule, source: string, step: number, share: number): number | null {
  const others = otherSources(schedule, source).reduce((sum, name) => sum + weightAt(schedule, name, step), 0);
  return others > 0 && share >= 0 && share < 1 ? (share / (1 - share)) * others : null;
}

/**
 * Make the weights at a step sum to `whole` again, by the others: what is locked, and `kept`, stay what they are.
 *
 * Sources that are scaled get a knot at the step where they have none. Returns the schedule itself where there is
 * nothing to scale: the others have no weight, or what stays is more than the whole already.
 */
export function renormaliseOthers(
  schedule: Schedule,
  kept: string,
  step: number,
  limits: Limits,
  options: { whole?: number; locked?: ReadonlySet<string> } = {},
): Schedule {
  const whole = options.whole ?? 1;
  const isKept = (name: string) => name === kept || (options.locked?.has(name) ?? false);
  const live = Object.keys(schedule.weights).filter((name) => !isRetired(schedule, name));
  const sum = (names: string[]) => names.reduce((total, name) => total + weightAt(schedule, name, step), 0);
  const free = sum(live.filter((name) => !isKept(name)));
  const left = whole - sum(live.filter(isKept));
  if (free <= 0 || left < 0 || step < limits.firstFree) return schedule;
  let after = schedule;
  for (const name of live) {
    if (!isKept(name)) after = scaledAt(after, name, step, left / free, limits);
  }
  return after;
}

function scaledAt(schedule: Schedule, source: string, step: number, factor: number, limits: Limits): Schedule {
  const field = weightField(source);
  const curve = addKnot(curveIn(schedule, field) ?? [], step, limits);
  const value = tidy(valueAt(curve, step) * factor);
  return withCurve(schedule, field, moveKnot(curve, step, { value }, limits));
}

/** Sum of the weights that count at a step. */
export function wholeAt(schedule: Schedule, step: number): number {
  return Object.keys(schedule.weights).reduce((sum, name) => sum + weightAt(schedule, name, step), 0);
}

/** A number without the noise of binary fractions: 12 significant digits. */
export function tidy(value: number): number {
  return Number(value.toPrecision(12));
}

function otherSources(schedule: Schedule, source: string): string[] {
  return Object.keys(schedule.weights).filter((name) => name !== source && !isRetired(schedule, name));
}

function finite(value: number | undefined, otherwise: number): number {
  return value !== undefined && Number.isFinite(value) ? value : otherwise;
}

/** Whether a field may be edited at all: a retired source is taken up first, a locked one let go. */
export function canEdit(schedule: Schedule, field: string, locked: ReadonlySet<string>): boolean {
  const source = sourceOf(field);
  return source === null || (!isRetired(schedule, source) && !locked.has(source));
}

/** All shares stay what they are at a step; G and C keep their curves. The planner's rule for holding the mixture. */
export function held(schedule: Schedule, step: number): Schedule {
  const weights = Object.entries(schedule.weights).map(([name, curve]): [string, Curve] => [
    name,
    constant(valueAt(curve, step)),
  ]);
  return { ...schedule, weights: Object.fromEntries(weights) };
}
