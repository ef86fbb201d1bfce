import { type Curve, type Knot, sameKnot, valueAt } from "./curve";
import { percent, weight, whole } from "./format";
import { changedFields, curveIn, fieldLabel, isRetired, type Schedule, shareAt, sourceOf } from "./schedule";

/** One field of a diff: what a person reads of it. */
export interface FieldDiff {
  readonly field: string;
  readonly lines: readonly string[];
}

/** What changes between two schedules for steps from `fromStep` on, a field each, in words. */
export function diff(before: Schedule, after: Schedule, fromStep: number): FieldDiff[] {
  return changedFields(before, after).map((field) => ({
    field,
    lines: linesOf(before, after, field, fromStep),
  }));
}

/** The diff as text, a line each. */
export function diffText(before: Schedule, after: Schedule, fromStep: number): string[] {
  return diff(before, after, fromStep).flatMap((each) => each.lines);
}

function linesOf(before: Schedule, after: Schedule, field: string, fromStep: number): string[] {
  const source = sourceOf(field);
  const label = source ?? fieldLabel(field);
  if (source !== null) {
    const now = isRetired(after, source);
    if (now && isRetired(before, source)) return [`${label}: stays retired, its curve changes`];
    if (now) return [`${label} ${percent(shareAt(before, source, fromStep))} → retired at step ${whole(fromStep)}`];
  }
  const moves = movesOf(curveIn(before, field), curveIn(after, field), wasRetired(before, source), fromStep);
  const text = moves.map((move) => `${label} ${moveText(before, after, source, field, move)}`);
  if (source !== null && isRetired(before, source)) return [`${label}: taken up again`, ...text];
  return text.length > 0 ? text : [`${label}: only steps before ${whole(fromStep)} change`];
}

function wasRetired(schedule: Schedule, source: string | null): boolean {
  return source !== null && isRetired(schedule, source);
}

/** A stretch of the new curve that the old one does not have. `isJump`: at one step, from the old curve's value. */
interface Move {
  readonly from: number;
  readonly to: number;
  readonly shape: "step" | "linear" | "cosine";
  readonly isJump: boolean;
}

function movesOf(before: Curve | undefined, after: Curve | undefined, isNew: boolean, fromStep: number): Move[] {
  if (after === undefined) return [{ from: fromStep, to: fromStep, shape: "step", isJump: true }];
  const moves: Move[] = [];
  const first = before === undefined || isNew ? 0 : valueAt(before, fromStep);
  if (!near(valueAt(after, fromStep), first)) {
    moves.push({ from: fromStep, to: fromStep, shape: "step", isJump: true });
  }
  for (let i = 0; i + 1 < after.length; i++) {
    const [a, b] = [after[i] as Knot, after[i + 1] as Knot];
    if (b.at <= fromStep || isNew || hasStretch(before, a, b)) continue;
    if (a.value === b.value) continue;
    moves.push({ from: Math.max(a.at, fromStep), to: b.at, shape: a.shape, isJump: false });
  }
  return moves.length > 0 || isNew ? moves : levelled(before, after, fromStep);
}

/** Nothing of the new curve moves, but the old one did: it stays level instead. */
function levelled(before: Curve | undefined, after: Curve, fromStep: number): Move[] {
  const last = before?.at(-1);
  if (last === undefined || last.at <= fromStep || near(last.value, valueAt(after, last.at))) return [];
  return [{ from: last.at, to: last.at, shape: "step", isJump: true }];
}

function hasStretch(before: Curve | undefined, a: Knot, b: Knot): boolean {
  const i = before?.findIndex((knot) => sameKnot(knot, a)) ?? -1;
  const next = before?.[i + 1];
  return i >= 0 && next !== undefined && next.at === b.at && next.value === b.value;
}

function moveText(before: Schedule, after: Schedule, source: string | null, field: string, move: Move): string {
  const value = (schedule: Schedule, step: number) =>
    source === null ? whole(valueAt(curveIn(schedule, field) as Curve, step)) : percentOf(schedule, source, step);
  if (move.isJump) return `${join(value(before, move.from), value(after, move.to))} at step ${whole(move.to)}`;
  const start = value(after, move.shape === "step" ? move.to - 1 : move.from);
  const text = join(start, value(after, move.to));
  if (move.shape === "step") return `${text} at step ${whole(move.to)}`;
  return `${text} from step ${whole(move.from)} to ${whole(move.to)}, ${move.shape}`;
}

function percentOf(schedule: Schedule, source: string, step: number): string {
  return percent(shareAt(schedule, source, step));
}

/** "40 → 55 %": the unit once, where both have it. */
function join(from: string, to: string): string {
  const unit = "\u202f%";
  return from.endsWith(unit) && to.endsWith(unit) ? `${from.slice(0, -unit.length)} → ${to}` : `${from} → ${to}`;
}

function near(a: number, b: number): boolean {
  return Math.abs(a - b) <= 1e-12 * Math.max(Math.abs(a), Math.abs(b));
}

/** A row of the table of changed knots. */
export interface KnotChange {
  readonly field: string;
  readonly at: number;
  readonly before: Knot | null;
  readonly after: Knot | null;
}

/** Knots that one of two schedules has and the other has not, or has otherwise; by field and step. */
export function changedKnots(before: Schedule, after: Schedule): KnotChange[] {
  return changedFields(before, after).flatMap((field) => {
    const [a, b] = [curveIn(before, field) ?? [], curveIn(after, field) ?? []];
    const steps = [...new Set([...a, ...b].map((knot) => knot.at))].sort((x, y) => x - y);
    return steps
      .map((at) => ({ field, at, before: at_(a, at), after: at_(b, at) }))
      .filter((row) => row.before === null || row.after === null || !sameKnot(row.before, row.after));
  });
}

function at_(curve: Curve, step: number): Knot | null {
  return curve.find((knot) => knot.at === step) ?? null;
}

/** A curve in a few words: "2 from 0, linear to 3 at 12 000". */
export function curveText(curve: Curve | null | undefined): string {
  if (!curve) return "no weight";
  const [first, ...rest] = curve as [Knot, ...Knot[]];
  if (rest.length === 0) return `${weight(first.value)} throughout`;
  const words = rest.map((knot, i) => {
    const before = curve[i] as Knot;
    return before.shape === "step"
      ? `${weight(knot.value)} at ${whole(knot.at)}`
      : `${before.shape} to ${weight(knot.value)} at ${whole(knot.at)}`;
  });
  return [`${weight(first.value)} from ${whole(first.at)}`, ...words].join(", ");
}
