import { type Curve, valueAt } from "../curves/curve";
import { isRetired, type Schedule } from "../curves/schedule";
import { byName } from "../ui/order";

// X = steps looked at

/** One band of the stacked mixture; the last may be all that is not drawn by itself. */
export interface Band {
  readonly name: string;
  readonly isRest: boolean;
  /** Share below and above the band at each step. */
  readonly low_X: readonly number[];
  readonly high_X: readonly number[];
}

const sampled = new WeakMap<Curve, { steps: readonly number[]; values: number[] }>();

/** Values of a curve at steps; the last answer of each curve is kept, since an edit changes one of hundreds. */
export function sample(curve: Curve, steps_X: readonly number[]): number[] {
  const known = sampled.get(curve);
  if (known !== undefined && known.steps === steps_X) return known.values;
  const values = steps_X.map((step) => valueAt(curve, step));
  sampled.set(curve, { steps: steps_X, values });
  return values;
}

/** Steps at which a picture of width `count` looks: evenly over the view, and where curves have corners in it. */
export function stepsToDraw(schedule: Schedule, from: number, to: number, count = 120): number[] {
  const even = Array.from({ length: count + 1 }, (_, i) => Math.round(from + ((to - from) * i) / count));
  const found = new Set(even);
  for (const curve of Object.values(schedule.weights)) {
    for (const knot of curve) {
      if (knot.at > from && knot.at <= to) found.add(knot.at).add(Math.max(from, knot.at - 1));
    }
    if (found.size > 4 * count) break;
  }
  return [...found].sort((a, b) => a - b);
}

/** The mixture as it is drawn: shares of the named sources, from the bottom up, and of all others together. */
export function stack(schedule: Schedule, names: readonly string[], steps_X: readonly number[]): Band[] {
  const live = Object.entries(schedule.weights).filter(([name]) => !isRetired(schedule, name));
  const values = new Map(live.map(([name, curve]) => [name, sample(curve, steps_X)]));
  const whole_X = steps_X.map((_, x) => {
    let sum = 0;
    for (const value_X of values.values()) sum += value_X[x] as number;
    return sum;
  });
  let low_X: number[] = steps_X.map(() => 0);
  const bands = names.map((name) => {
    const value_X = values.get(name);
    const high_X = low_X.map((low, x) => low + share(value_X?.[x] ?? 0, whole_X[x] as number));
    const band: Band = { name, isRest: false, low_X, high_X };
    low_X = high_X;
    return band;
  });
  if (live.every(([name]) => names.includes(name))) return bands;
  const high_X = low_X.map((low, x) => (whole_X[x] ? 1 : low));
  return [...bands, { name: "others", isRest: true, low_X, high_X }];
}

/** The sources with the largest shares anywhere in the steps, largest first. */
export function topSources(schedule: Schedule, steps_X: readonly number[], count: number): string[] {
  const live = Object.entries(schedule.weights).filter(([name]) => !isRetired(schedule, name));
  const values = live.map(([name, curve]): [string, number[]] => [name, sample(curve, steps_X)]);
  const whole_X = steps_X.map((_, x) => values.reduce((sum, [, value_X]) => sum + (value_X[x] as number), 0));
  const largest = values.map(([name, value_X]): [string, number] => [
    name,
    value_X.reduce((top, value, x) => Math.max(top, share(value, whole_X[x] as number)), 0),
  ]);
  return largest
    .sort(([a, x], [b, y]) => y - x || byName(a, b))
    .slice(0, count)
    .map(([name]) => name);
}

function share(value: number, whole: number): number {
  return whole > 0 ? value / whole : 0;
}
