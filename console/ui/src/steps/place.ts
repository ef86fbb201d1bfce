import { clamp } from "../ui/clamp";

/** What the inspector shows: a rank's batch of a step, or one microbatch of it. */
export interface Spot {
  step: number;
  rank: number;
  /** Undefined: all of the rank's microbatches. */
  microbatch?: number;
}

export interface Bounds {
  first: number;
  /** Exclusive. */
  planned: number;
  worldSize: number;
  /** Microbatches of a dp rank. */
  perRank: number;
}

export type Move = "step-" | "step+" | "rank-" | "rank+" | "microbatch-" | "microbatch+";

/** Keys of the inspector. */
export const KEYS: Record<string, Move> = {
  p: "step-",
  n: "step+",
  k: "rank-",
  j: "rank+",
  "[": "microbatch-",
  "]": "microbatch+",
};

/** Where a move leads; the same spot at the border. `[` and `]` go over "all microbatches" at both ends. */
export function go(spot: Spot, move: Move, bounds: Bounds): Spot {
  const by = move.endsWith("+") ? 1 : -1;
  if (move.startsWith("step")) return { ...spot, step: clamp(spot.step + by, bounds.first, bounds.planned - 1) };
  if (move.startsWith("rank")) return { ...spot, rank: clamp(spot.rank + by, 0, bounds.worldSize - 1) };
  return { ...spot, microbatch: turned(spot.microbatch, by, bounds.perRank) };
}

function turned(microbatch: number | undefined, by: number, perRank: number): number | undefined {
  const places = perRank + 1;
  const next = ((microbatch ?? -1) + 1 + by + places) % places;
  return next === 0 ? undefined : next - 1;
}

/** The command that says the same in a shell. */
export function explainCommand(url: string, run: string, stream: string, spot: Spot): string {
  const parts = ["loadmaster explain", quoted(url), quoted(run)];
  if (stream !== "train") parts.push(`--stream ${quoted(stream)}`);
  parts.push(`--step ${spot.step}`, `--rank ${spot.rank}`);
  if (spot.microbatch !== undefined) parts.push(`--microbatch ${spot.microbatch}`);
  return [...parts, "--text"].join(" ");
}

const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
