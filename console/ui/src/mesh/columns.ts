/** What the planner tells of the ranks, as columns: one entry a rank, in order of rank; null where nothing is known. */
export interface RankColumns {
  rank: number[];
  host: (string | null)[];
  constructor: (string | null)[];
  /** Axis -> coordinate of each rank. */
  coords: Record<string, number[]>;
  acknowledged: number[];
  seen_s: (number | null)[];
  moved_s: (number | null)[];
  wait_s: (number | null)[];
  last_wait_s: (number | null)[];
  cost: (number | null)[];
  tokens: (number | null)[];
  state: string[];
}

/** Ranks that changed: what an event of the stream tells. */
export interface RankChanges {
  rank: number[];
  behind: number[];
  state: string[];
  wait_s: (number | null)[];
}

/** The columns, and how far each rank is behind the furthest. */
export interface Ranks extends RankColumns {
  behind: number[];
}

export type MetricKey = "wait_s" | "last_wait_s" | "behind" | "moved_s" | "seen_s" | "cost" | "tokens";

/** A metric of the heat map; of all of them the high end is the bad one. */
export interface Metric {
  key: MetricKey;
  label: string;
  /** How a value is told. */
  unit: "seconds" | "steps" | "ratio" | "tokens";
  about: string;
}

export const METRICS: readonly Metric[] = [
  {
    key: "wait_s",
    label: "Data wait",
    unit: "seconds",
    about: "how long the rank waits for a step, mean over the window",
  },
  {
    key: "last_wait_s",
    label: "Last wait",
    unit: "seconds",
    about: "how long it waited for its newest step",
  },
  { key: "behind", label: "Steps behind", unit: "steps", about: "steps behind the furthest rank" },
  { key: "moved_s", label: "Since last step", unit: "seconds", about: "time since it consumed a step" },
  { key: "seen_s", label: "Last heard of", unit: "seconds", about: "time since it was heard of" },
  {
    key: "cost",
    label: "Cost",
    unit: "ratio",
    about: "planned work of its dp rank in the window, over the mean of all",
  },
  {
    key: "tokens",
    label: "Tokens",
    unit: "tokens",
    about: "planned tokens of its dp rank in a step, mean over the window",
  },
];

/** Take the planner's answer in. */
export function taken(columns: RankColumns): Ranks {
  const furthest = columns.acknowledged.reduce((most, step) => Math.max(most, step), 0);
  return { ...columns, behind: columns.acknowledged.map((step) => furthest - step) };
}

/** The ranks with what an event changes; those that it does not name are as they were. */
export function changed(ranks: Ranks, event: RankChanges): Ranks {
  const next = { ...ranks, behind: [...ranks.behind], state: [...ranks.state], wait_s: [...ranks.wait_s] };
  event.rank.forEach((rank, i) => {
    if (rank >= ranks.rank.length) return;
    next.behind[rank] = event.behind[i] ?? 0;
    next.state[rank] = event.state[i] ?? "unknown";
    next.wait_s[rank] = event.wait_s[i] ?? null;
  });
  return next;
}

/** Whether a rank does not report: it is hatched, which is something else than 0. */
export const isSilent = (state: string | undefined): boolean => state === "silent" || state === "unheard";

export const metricOf = (key: string): Metric => METRICS.find((metric) => metric.key === key) ?? (METRICS[0] as Metric);

/** One metric of all ranks: NaN where it is not known, or nothing was heard of the rank. */
export function values(ranks: Ranks, metric: MetricKey): Float64Array {
  return Float64Array.from(ranks[metric], (value, i) =>
    value === null || ranks.state[i] === "unheard" ? Number.NaN : value,
  );
}

/** The metrics that at least one rank has a value of. */
export function known(ranks: Ranks): Metric[] {
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

/** Indexes of the ranks, the greatest value first, those without one last; equal ones by rank. */
export function worstFirst(value: Float64Array): Int32Array {
  const key = (i: number) => (Number.isNaN(value[i]) ? Number.NEGATIVE_INFINITY : (value[i] as number));
  return Int32Array.from(value.keys()).sort((a, b) => (key(a) > key(b) ? -1 : key(a) < key(b) ? 1 : a - b));
}
