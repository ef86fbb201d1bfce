import type { Tone } from "../ui";
import { formatCount, formatExact, formatSeconds } from "../ui";
import type { Metric, Ranks } from "./columns";

/** A value of a metric for people; null where it is not known. */
export function told(metric: Metric, value: number | null | undefined): string | null {
  if (value === null || value === undefined || Number.isNaN(value)) return null;
  if (metric.unit === "seconds") return formatSeconds(value);
  if (metric.unit === "ratio") return `${value.toFixed(3)} × mean`;
  if (metric.unit === "steps") return `${formatExact(value)} ${value === 1 ? "step" : "steps"}`;
  return formatCount(value);
}

/** A rank in one line: who, where, how much, and how it is. */
export function rankLine(ranks: Ranks, metric: Metric, index: number): string {
  const value = told(metric, ranks[metric.key][index]) ?? "not known";
  const state = ranks.state[index] ?? "unknown";
  const where = ranks.host[index] ? `, ${ranks.host[index]}` : "";
  return `rank ${ranks.rank[index]}${where}: ${metric.label.toLowerCase()} ${value}${state === "ok" ? "" : `, ${STATES[state]?.word ?? state}`}`;
}

/** What the states of a rank mean. */
export const STATES: Record<string, { tone: Tone; word: string }> = {
  ok: { tone: "ok", word: "ok" },
  behind: { tone: "warn", word: "behind" },
  silent: { tone: "bad", word: "silent" },
  unheard: { tone: "unknown", word: "not heard of yet" },
  left: { tone: "idle", word: "left" },
  passive: { tone: "idle", word: "does not fetch" },
};
