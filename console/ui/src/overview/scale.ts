/** Steps that the chart has room for before it is full, so that a few bars are not as wide as the page. */
const FEWEST_SLOTS = 40;
/** A wait this many times the usual one would flatten all others: it is cut off, and says so. */
const CUT_OFF = 8;

export interface WaitScale {
  first: number;
  slots: number;
  /** What the full height stands for. */
  top: number;
}

/** Where steps stand, and what the height means: by the largest wait, unless one alone is far beyond the others. */
export function scaleOf(steps: number[], waits: (number | null)[], shown: number): WaitScale {
  const last = steps.at(-1) ?? 0;
  const first = Math.max(steps[0] ?? 0, last - shown + 1);
  const told = waits.filter((wait) => wait !== null).sort((a, b) => a - b);
  const largest = told.at(-1) ?? 0;
  const usual = told[Math.floor((told.length - 1) * 0.95)] ?? 0;
  const isCut = usual > 0 && largest > usual * CUT_OFF;
  return {
    first,
    slots: Math.max(FEWEST_SLOTS, last - first + 1),
    top: Math.max(1e-4, isCut ? usual * 2 : largest),
  };
}
