/** The grid that knots snap to: whole steps and values of 1, 2 or 5 times a power of ten, at least 6 px apart. */
export interface Grid {
  readonly step: number;
  readonly value: number;
}

const LEAST_PX = 6;

/** The grid for what is in view. Values are whole where `isWhole` (G and C). */
export function gridFor(
  view: { from: number; to: number; top: number },
  size: { width: number; height: number },
  multiple?: number,
): Grid {
  const step = Math.max(1, niceAbove(((view.to - view.from) / Math.max(1, size.width)) * LEAST_PX));
  const value = niceAbove((view.top / Math.max(1, size.height)) * LEAST_PX);
  return {
    step,
    value: multiple === undefined ? value : Math.max(1, Math.ceil(value / multiple)) * multiple,
  };
}

/** The smallest of 1, 2, 5, 10, ... (and 0.5, 0.2, ...) that is not below a size. */
export function niceAbove(size: number): number {
  if (!(size > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(size));
  for (const factor of [1, 2, 5]) if (factor * power >= size * (1 - 1e-9)) return clean(factor * power);
  return clean(10 * power);
}

export function snap(value: number, unit: number): number {
  return clean(Math.round(value / unit) * unit);
}

function clean(value: number): number {
  return Number(value.toPrecision(12));
}
