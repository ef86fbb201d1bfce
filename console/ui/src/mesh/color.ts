/** Colours of the heat map: lightness alone tells high from low, so that it reads without telling hues apart. */
type Rgb = [number, number, number];

const LIGHT: Rgb[] = [
  [235, 241, 247],
  [190, 212, 232],
  [246, 200, 112],
  [214, 120, 42],
  [134, 44, 22],
];
const DARK: Rgb[] = [
  [36, 48, 62],
  [52, 86, 120],
  [168, 98, 42],
  [226, 150, 62],
  [255, 228, 170],
];
const STEPS = 256;

/** A table of `STEPS` colours as 0xAABBGGRR, the order in which ImageData has them on little-endian machines. */
export function palette(isDark: boolean): Uint32Array {
  const stops = isDark ? DARK : LIGHT;
  return Uint32Array.from({ length: STEPS }, (_, i) => pack(mix(stops, i / (STEPS - 1))));
}

/** CSS colour of a place in [0, 1]. */
export function css(isDark: boolean, at: number): string {
  const [r, g, b] = mix(isDark ? DARK : LIGHT, at);
  return `rgb(${r} ${g} ${b})`;
}

function mix(stops: Rgb[], at: number): Rgb {
  const place = Math.min(Math.max(at, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(place), stops.length - 2);
  const [a, b] = [stops[i] as Rgb, stops[i + 1] as Rgb];
  return [0, 1, 2].map((c) =>
    Math.round((a[c] as number) + ((b[c] as number) - (a[c] as number)) * (place - i)),
  ) as Rgb;
}

const pack = ([r, g, b]: Rgb): number => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

/** From a value to its place in [0, 1]. */
export interface Domain {
  low: number;
  high: number;
}

const NARROW = 0.02;

/** From low to high of the known values. Where they are nearly alike it is widened, so that noise does not look like
 * skew: at least 2 % of the mean from one end to the other. */
export function domain(value: ArrayLike<number>): Domain {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let i = 0; i < value.length; i++) {
    const v = value[i] as number;
    if (Number.isNaN(v)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  if (low > high) return { low: 0, high: 1 };
  const least = (Math.abs(low + high) / 2) * NARROW || 1;
  return high - low < least ? { low: Math.max(0, low - least / 2), high: high + least / 2 } : { low, high };
}

/** Place of a value in its domain, [0, 1]; NaN stays NaN. */
export const place = (value: number, { low, high }: Domain): number =>
  Math.min(Math.max((value - low) / (high - low), 0), 1);

/** Row of the palette. */
export const shade = (value: number, of: Domain): number => Math.round(place(value, of) * (STEPS - 1));
