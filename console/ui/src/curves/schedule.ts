import { type Curve, constant, type Knot, type Shape, sameCurve, valueAt } from "./curve";

/** A run's curriculum as one revision has it: whole, not a change of another one. Never changed in place. */
export interface Schedule {
  readonly weights: Readonly<Record<string, Curve>>;
  readonly microbatches: Curve;
  readonly seq_len: Curve;
  readonly retired: readonly string[];
}

/** G and C: what a schedule has beside its weights. */
export type Size = "microbatches" | "seq_len";
export const SIZES: readonly Size[] = ["microbatches", "seq_len"];
export const WEIGHTS = "weights.";

/** One field of a schedule: `microbatches`, `seq_len`, or `weights.SOURCE`. */
export type Field = Size | `weights.${string}`;

export function weightField(source: string): Field {
  return `${WEIGHTS}${source}` as Field;
}

/** The source of a field; null for G and C. */
export function sourceOf(field: string): string | null {
  return field.startsWith(WEIGHTS) ? field.slice(WEIGHTS.length) : null;
}

/** What a person reads for a field. */
export function fieldLabel(field: string): string {
  if (field === "microbatches") return "G (microbatches)";
  return field === "seq_len" ? "C (tokens)" : (sourceOf(field) ?? field);
}

/** The planner's form of a curve. */
export interface RampJson {
  knots: { at: number; value: number; shape?: Shape | undefined }[];
}

/** The planner's form of a schedule. */
export interface ScheduleJson {
  weights: Record<string, RampJson>;
  microbatches: RampJson;
  seq_len: RampJson;
  retired?: string[] | undefined;
}

export function fromJson(json: ScheduleJson): Schedule {
  return {
    weights: mapValues(json.weights, curveOf),
    microbatches: curveOf(json.microbatches),
    seq_len: curveOf(json.seq_len),
    retired: [...(json.retired ?? [])].sort(),
  };
}

export function toJson(schedule: Schedule): ScheduleJson {
  return {
    weights: mapValues(schedule.weights, rampOf),
    microbatches: rampOf(schedule.microbatches),
    seq_len: rampOf(schedule.seq_len),
    retired: [...schedule.retired],
  };
}

export function curveOf(ramp: RampJson): Curve {
  return ramp.knots.map((knot): Knot => ({ at: knot.at, value: knot.value, shape: knot.shape ?? "step" }));
}

function rampOf(curve: Curve): RampJson {
  return { knots: curve.map((knot) => ({ ...knot })) };
}

/** The curve of a field; undefined where a source has no weight. */
export function curveIn(schedule: Schedule, field: string): Curve | undefined {
  const source = sourceOf(field);
  return source === null ? schedule[field as Size] : own(schedule.weights, source);
}

/** The schedule with another curve in one field. */
export function withCurve(schedule: Schedule, field: string, curve: Curve): Schedule {
  const source = sourceOf(field);
  if (source === null) return { ...schedule, [field]: curve };
  return { ...schedule, weights: { ...schedule.weights, [source]: curve } };
}

/** The schedule with a source retired, or taken up again; one without a weight begins with none. */
export function withRetired(schedule: Schedule, source: string, isRetired: boolean): Schedule {
  const others = schedule.retired.filter((name) => name !== source);
  const weights = own(schedule.weights, source) ? schedule.weights : { ...schedule.weights, [source]: constant(0) };
  return { ...schedule, weights, retired: isRetired ? [...others, source].sort() : others };
}

export function isRetired(schedule: Schedule, source: string): boolean {
  return schedule.retired.includes(source);
}

/** A source's weight at a step as it counts: 0 where it is retired or has none. */
export function weightAt(schedule: Schedule, source: string, step: number): number {
  const curve = own(schedule.weights, source);
  return curve === undefined || schedule.retired.includes(source) ? 0 : valueAt(curve, step);
}

/** Share of each source with a weight at a step; they sum to 1, or are all 0. */
export function sharesAt(schedule: Schedule, step: number): Map<string, number> {
  const gone = new Set(schedule.retired);
  const live = Object.entries(schedule.weights).map(([name, curve]): [string, number] => [
    name,
    gone.has(name) ? 0 : valueAt(curve, step),
  ]);
  const whole = live.reduce((sum, [, weight]) => sum + weight, 0) || 1;
  return new Map(live.map(([name, weight]) => [name, weight / whole]));
}

export function shareAt(schedule: Schedule, source: string, step: number): number {
  return sharesAt(schedule, step).get(source) ?? 0;
}

/** Names of the fields in which two schedules differ, sorted as the planner does. */
export function changedFields(before: Schedule, after: Schedule): string[] {
  return fieldsOf(before, after).filter((field) => !sameField(before, after, field));
}

/** Whether a field is the same in both: its curve, and for a source whether it is retired. */
export function sameField(a: Schedule, b: Schedule, field: string): boolean {
  const source = sourceOf(field);
  const isSame = sameCurve(curveIn(a, field), curveIn(b, field));
  return isSame && (source === null || isRetired(a, source) === isRetired(b, source));
}

/** All fields that one of the schedules has, sorted. */
export function fieldsOf(...schedules: Schedule[]): string[] {
  const sources = schedules.flatMap((schedule) => [...Object.keys(schedule.weights), ...schedule.retired]);
  return [...new Set([...SIZES, ...sources.map(weightField)])].sort();
}

export function sameSchedule(a: Schedule, b: Schedule): boolean {
  return a === b || changedFields(a, b).length === 0;
}

function own<T>(record: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}

function mapValues<A, B>(record: Record<string, A>, change: (value: A) => B): Record<string, B> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value)]));
}
