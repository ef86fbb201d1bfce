import { formatCount, formatExact } from "../ui/format";

/** Steps and counts with all their digits, and tokens with three. */
export { formatCount as tokens, formatExact as whole };

const SPACE = "\u202f";

/** 40 %, 12.3 %, 4.2 %, 0.31 %: as many digits as one reads at a glance. */
export function percent(share: number): string {
  const value = share * 100;
  const digits = value === 0 || value >= 10 ? 0 : value >= 1 ? 1 : 2;
  const exact = value >= 10 && Math.abs(value - Math.round(value)) >= 0.05 ? 1 : digits;
  return `${Number(value.toFixed(exact))}${SPACE}%`;
}

/** A weight as people type it: up to 4 significant digits, no trailing zeros. */
export function weight(value: number): string {
  return value === 0 ? "0" : String(Number(value.toPrecision(4)));
}
