const THIN = "\u202f";

/** 12 000: groups of three, with narrow no-break spaces. */
export function whole(value: number): string {
  const digits = Math.abs(Math.round(value)).toString();
  const grouped = digits.replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
  return value < 0 && grouped !== "0" ? `−${grouped}` : grouped;
}

/** 40 %, 4.2 %, 0.31 %: as many digits as one reads at a glance. */
export function percent(share: number): string {
  const value = share * 100;
  const digits = value === 0 || value >= 10 ? 0 : value >= 1 ? 1 : 2;
  const exact = value >= 10 && Math.abs(value - Math.round(value)) >= 0.05 ? 1 : digits;
  return `${Number(value.toFixed(exact))}${THIN}%`;
}

/** 1.2 M, 3.4 B: tokens. */
export function tokens(value: number): string {
  for (const [size, unit] of UNITS)
    if (Math.abs(value) >= size) return `${digits(value / size)}${THIN}${unit}`;
  return whole(value);
}

/** A weight as people type it: up to 4 significant digits, no trailing zeros. */
export function weight(value: number): string {
  return value === 0 ? "0" : String(Number(value.toPrecision(4)));
}

const UNITS: [number, string][] = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "B"],
  [1e6, "M"],
  [1e3, "k"],
];

function digits(value: number): string {
  return String(Number(value.toPrecision(3)));
}
