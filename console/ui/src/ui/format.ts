/** Numbers for people. Each gives value and unit apart, or one text; null is told as an em dash by who shows it. */

const SI = ["", "k", "M", "G", "T", "P"];
const SPACE = "\u202f";

/** At most three significant digits with an SI prefix: 12 345 678 -> "12.3 M". */
export function formatCount(value: number): string {
  const power = Math.min(Math.floor(Math.log10(Math.max(Math.abs(value), 1)) / 3), SI.length - 1);
  if (power === 0) return trim(value, Math.abs(value) < 100 && !Number.isInteger(value) ? 2 : 0);
  const scaled = value / 1000 ** power;
  return `${trim(scaled, scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2)}${SPACE}${SI[power]}`;
}

/** All digits, grouped by thin spaces: steps and counts that must be exact. */
export function formatExact(value: number): string {
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, SPACE);
}

/** Bytes with binary prefixes. */
export function formatBytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(value, 1)) / 10), units.length - 1);
  const scaled = value / 1024 ** power;
  return `${trim(scaled, power && scaled < 100 ? 1 : 0)}${SPACE}${units[power]}`;
}

/** A duration: "850 µs", "12.4 ms", "3.20 s", "4 min 5 s", "2 h 3 min". */
export function formatSeconds(value: number): string {
  if (value === 0) return `0${SPACE}s`;
  if (value < 1e-3) return `${trim(value * 1e6, 0)}${SPACE}µs`;
  if (value < 1) return `${trim(value * 1e3, value < 0.1 ? 1 : 0)}${SPACE}ms`;
  if (value < 60) return `${trim(value, Number.isInteger(value) ? 0 : value < 10 ? 2 : 1)}${SPACE}s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)}${SPACE}min ${whole % 60}${SPACE}s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}${SPACE}h ${Math.floor((whole % 3600) / 60)}${SPACE}min`;
  return `${Math.floor(whole / 86_400)}${SPACE}d ${Math.floor((whole % 86_400) / 3600)}${SPACE}h`;
}

/** A share of one: 0.1234 -> "12.3 %". */
export function formatShare(value: number): string {
  const percent = value * 100;
  return `${trim(percent, Math.abs(percent) >= 100 ? 0 : Math.abs(percent) < 1 ? 2 : 1)}${SPACE}%`;
}

/** With its sign; an exact 0 has none. */
export const formatSigned = (value: number): string =>
  value > 0 ? `+${formatCount(value)}` : value < 0 ? `−${formatCount(-value)}` : "0";

/** How long ago: "now", "8 s ago". */
export function formatAge(age_s: number): string {
  return age_s < 1.5 ? "now" : `${formatSeconds(Math.round(age_s))} ago`;
}

/** Local time with UTC in the same text, from seconds since 1970. */
export function formatTime(at_s: number): { local: string; utc: string } {
  const date = new Date(at_s * 1000);
  return {
    local: date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }),
    utc: `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`,
  };
}

function trim(value: number, digits: number): string {
  return value.toFixed(digits);
}
