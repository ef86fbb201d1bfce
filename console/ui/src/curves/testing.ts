import type { Curve, Shape } from "./curve";
import type { Schedule } from "./schedule";

/** A curve from [step, value, shape] rows; the last shape may be left out. */
export function curve(...knots: [number, number, Shape?][]): Curve {
  return knots.map(([at, value, shape]) => ({ at, value, shape: shape ?? "step" }));
}

/** A schedule of two constant sources, unless told otherwise. */
export function schedule(changes: Partial<Schedule> = {}): Schedule {
  return {
    weights: { web: curve([0, 0.4]), code: curve([0, 0.6]) },
    microbatches: curve([0, 64]),
    seq_len: curve([0, 4096]),
    retired: [],
    ...changes,
  };
}

/** Text with plain spaces: numbers are grouped with narrow ones. */
export function plain(text: string): string {
  return text.replaceAll("\u202f", " ");
}
