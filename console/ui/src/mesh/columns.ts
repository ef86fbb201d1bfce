/** What the planner tells of the ranks, as columns: one entry a rank, null where nothing is known. */
export interface RankColumns {
  rank: number[];
  host: (string | null)[];
  constructor_id: (string | null)[];
  /** Axis -> coordinate of each rank. */
  coords: Record<string, number[]>;
  acknowledged: (number | null)[];
  seen_s: (number | null)[];
  moved_s: (number | null)[];
  wait_s: (number | null)[];
  cost: (number | null)[];
  tokens: (number | null)[];
  state: string[];
}

/** A metric of the heat map. `worst` says which end of it is the bad one. */
export interface Metric {
  key: "wait_s" | "moved_s" | "seen_s" | "cost" | "tokens" | "lag";
  label: string;
  unit: string;
  worst: "high" | "low";
  about: string;
}

export const METRICS: readonly Metric[] = [
  {
    key: "wait_s",
    label: "data wait",
    unit: "s",
    worst: "high",
    about: "seconds a step that the rank waits for its batch",
  },
  {
    key: "moved_s",
    label: "since last step",
    unit: "s",
    worst: "high",
    about: "seconds since the rank consumed a step",
  },
  {
    key: "lag",
    label: "steps behind",
    unit: "steps",
    worst: "high",
    about: "steps behind the furthest rank",
  },
  {
    key: "seen_s",
    label: "last heard of",
    unit: "s",
    worst: "high",
    about: "seconds since the rank was heard of",
  },
  {
    key: "cost",
    label: "cost",
    unit: "× mean",
    worst: "high",
    about: "work of the last step, over the mean of all ranks",
  },
  { key: "tokens", label: "tokens", unit: "tokens", worst: "high", about: "tokens of the last step" },
];

export const metricOf = (key: string): Metric =>
  METRICS.find((metric) => metric.key === key) ?? (METRICS[0] as Metric);

/** One metric of all ranks: NaN where it is not known or the rank does not report. */
export function values(ranks: RankColumns, metric: Metric["key"]): Float64Array {
  const of = metric === "lag" ? lags(ranks.acknowledged) : ranks[metric];
  return Float64Array.from(of, (value, i) =>
    value === null || ranks.state[i] === "unheard" ? Number.NaN : value,
  );
}

function lags(acknowledged: (number | null)[]): (number | null)[] {
  let furthest = 0;
  for (const step of acknowledged) if (step !== null && step > furthest) furthest = step;
  return acknowledged.map((step) => (step === null ? null : furthest - step));
}

/** The metrics that at least one rank has a value of. */
export function known(ranks: RankColumns): Metric[] {
  return METRICS.filter((metric) => values(ranks, metric.key).some((value) => !Number.isNaN(value)));
}

export interface Summary {
  mean: number;
  max: number;
  min: number;
  /** Ranks that have a value, and those that have none. */
  known: number;
  unknown: number;
  /** Max over mean, 1 where all are alike; NaN where nothing is known or all is 0. */
  skew: number;
}

/** Mean, extremes and skew of the values that are known. */
export function summarize(value: Float64Array): Summary {
  let [sum, max, min, count] = [0, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, 0];
  for (const v of value) {
    if (Number.isNaN(v)) continue;
    sum += v;
    count += 1;
    if (v > max) max = v;
    if (v < min) min = v;
  }
  const mean = count ? sum / count : Number.NaN;
  const bounds = count ? { max, min } : { max: Number.NaN, min: Number.NaN };
  return {
    ...bounds,
    mean,
    known: count,
    unknown: value.length - count,
    skew: mean > 0 ? max / mean : Number.NaN,
  };
}

/** Places of the ranks, the worst first, those without a value last; equal ones by rank. */
export function worstFirst(value: Float64Array, worst: Metric["worst"]): Int32Array {
  const sign = worst === "high" ? -1 : 1;
  const place = (i: number) =>
    Number.isNaN(value[i]) ? Number.POSITIVE_INFINITY : sign * (value[i] as number);
  return Int32Array.from(value.keys()).sort((a, b) =>
    place(a) < place(b) ? -1 : place(a) > place(b) ? 1 : a - b,
  );
}
