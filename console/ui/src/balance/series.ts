/** x values and lines as uPlot takes them: null is a gap. */
export type Lines = [number[], ...(number | null)[][]];

/** Lines over steps. Steps that are missing, and the change to another generation, are drawn as gaps. */
export function lines(step: number[], columns: (number | null)[][], generation?: number[]): Lines {
  const x: number[] = [];
  const y: (number | null)[][] = columns.map(() => []);
  step.forEach((at, i) => {
    const before = i > 0 ? (step[i - 1] as number) : at - 1;
    const isBroken = i > 0 && (at !== before + 1 || (generation && generation[i] !== generation[i - 1]));
    if (isBroken) {
      x.push(Math.min(before + 0.5, at));
      for (const line of y) line.push(null);
    }
    x.push(at);
    columns.forEach((column, c) => {
      y[c]?.push(column[i] ?? null);
    });
  });
  return [x, ...y];
}

/** Stretches [first, last] of steps that are missing between those that are there. */
export function gaps(step: number[]): [number, number][] {
  const found: [number, number][] = [];
  for (let i = 1; i < step.length; i++) {
    const [before, at] = [step[i - 1] as number, step[i] as number];
    if (at > before + 1) found.push([before + 1, at - 1]);
  }
  return found;
}

/** Mean and maximum of what is known of a column; null where nothing is. */
export function spread(column: (number | null)[]): { mean: number; max: number } | null {
  const known = column.filter((value): value is number => value !== null);
  if (!known.length) return null;
  return { mean: known.reduce((sum, value) => sum + value, 0) / known.length, max: Math.max(...known) };
}

/** The window next to this one, of the same width, kept at or after step 0. */
export function shifted(first: number, last: number, by: -1 | 1): { from: number; to: number } {
  const width = Math.max(1, last - first);
  const from = Math.max(0, first + by * width);
  return { from, to: from + width };
}

/** The middle half of a window, or twice its width. */
export function zoomed(first: number, last: number, factor: number): { from: number; to: number } {
  const [middle, half] = [(first + last) / 2, Math.max(2, ((last - first) * factor) / 2)];
  const from = Math.max(0, Math.round(middle - half));
  return { from, to: Math.max(from + 1, Math.round(middle + half)) };
}
