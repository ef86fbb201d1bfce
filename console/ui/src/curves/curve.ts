/** How a curve goes from a knot to the next one. */
export type Shape = "step" | "linear" | "cosine";
export const SHAPES: readonly Shape[] = ["step", "linear", "cosine"];

/** The value at a step, and the way to the next knot. */
export interface Knot {
  readonly at: number;
  readonly value: number;
  readonly shape: Shape;
}

/** Knots with ascending `at`, one at least. Never changed in place: a new curve is a new array. */
export type Curve = readonly Knot[];

/**
 * The curve's value at a step: the one rule, equal to `Ramp.at` of the planner (tests/schedules/curve_cases.json).
 *
 * Before the first knot it is the first value, after the last one the last value. Between knots a and b, with
 * x = (step - a.at) / (b.at - a.at): step: a; linear: a + (b - a) x; cosine: a + (b - a) (1 - cos(pi x)) / 2.
 */
export function valueAt(curve: Curve, step: number): number {
  const next = indexAfter(curve, step);
  const a = curve[Math.max(0, next - 1)] as Knot;
  const b = curve[next];
  if (b === undefined || step <= a.at || a.shape === "step") return a.value;
  const x = (step - a.at) / (b.at - a.at);
  const share = a.shape === "linear" ? x : (1 - Math.cos(Math.PI * x)) / 2;
  return a.value + (b.value - a.value) * share;
}

/** Index of the first knot after a step; the curve's length where there is none. */
export function indexAfter(curve: Curve, step: number): number {
  let low = 0;
  let high = curve.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((curve[middle] as Knot).at <= step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A curve's value as the planner counts with it: cut to an integer, then rounded down to a multiple. */
export function countAt(curve: Curve, step: number, multiple: number): number {
  return Math.floor(Math.trunc(valueAt(curve, step)) / multiple) * multiple;
}

/** A curve that has one value at all steps. */
export function constant(value: number): Curve {
  return [{ at: 0, value, shape: "step" }];
}

/** Whether two curves have the same knots. */
export function sameCurve(a: Curve | undefined, b: Curve | undefined): boolean {
  if (a === b) return true;
  if (a === undefined || b === undefined || a.length !== b.length) return false;
  return a.every((knot, i) => sameKnot(knot, b[i]));
}

export function sameKnot(a: Knot, b: Knot | undefined): boolean {
  return b !== undefined && a.at === b.at && a.value === b.value && a.shape === b.shape;
}

/** Points of the curve's line between two steps: few where it is straight, `perBend` where it bends. */
export function polyline(curve: Curve, from: number, to: number, perBend = 24): [number, number][] {
  const points: [number, number][] = [[from, valueAt(curve, from)]];
  for (let i = Math.max(0, indexAfter(curve, from) - 1); i < curve.length; i++) {
    const a = curve[i] as Knot;
    const b = curve[i + 1];
    if (a.at > to) break;
    if (a.at > from) points.push([a.at, a.value]);
    if (b === undefined) break;
    if (a.shape === "step") points.push([Math.min(b.at, to), a.value]);
    else if (a.shape === "cosine") points.push(...bend(curve, Math.max(a.at, from), Math.min(b.at, to), perBend));
  }
  points.push([to, valueAt(curve, to)]);
  return points;
}

function bend(curve: Curve, from: number, to: number, count: number): [number, number][] {
  const steps = Array.from({ length: count - 1 }, (_, i) => from + ((to - from) * (i + 1)) / count);
  return steps.map((step) => [step, valueAt(curve, step)]);
}
