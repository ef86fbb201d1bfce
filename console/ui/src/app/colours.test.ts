import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

type Rgb = [number, number, number];

const css = readFileSync("src/app/theme.css", "utf8");

function coloursOf(selector: string): Record<string, Rgb> {
  const block = css.slice(css.indexOf(`${selector} {`)).split("}")[0] ?? "";
  const found = block.matchAll(/--lm-([\w-]+): #([0-9a-f]{6});/g);
  return Object.fromEntries(
    [...found].map(([, name, hex]) => [
      name,
      [0, 2, 4].map((at) => Number.parseInt((hex ?? "").slice(at, at + 2), 16)),
    ]),
  ) as unknown as Record<string, Rgb>;
}

const THEMES = { light: coloursOf(":root"), dark: coloursOf('[data-mantine-color-scheme="dark"]') };
const linear = (value: number) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);

function luminance([r, g, b]: Rgb): number {
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}

function contrast(a: Rgb, b: Rgb): number {
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

/** CIE Lab (D65) of linear RGB. */
function lab(rgb: Rgb): Rgb {
  const [r, g, b] = rgb;
  const f = (t: number) => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116);
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** How a deuteranope sees it: Viénot, Brettel and Mollon 1999, on linear RGB. */
function deuteranope([r, g, b]: Rgb): Rgb {
  return [0.29275 * r + 0.70725 * g, 0.29275 * r + 0.70725 * g, -0.02234 * r + 0.02234 * g + b];
}

const normal = (rgb: Rgb): Rgb => rgb;

function difference(a: Rgb, b: Rgb, eye: (rgb: Rgb) => Rgb): number {
  const [one, other] = [a, b].map((rgb) => lab(eye(rgb.map(linear) as Rgb))) as [Rgb, Rgb];
  return Math.hypot(one[0] - other[0], one[1] - other[1], one[2] - other[2]);
}

const TONES = ["ok", "busy", "warn", "bad", "idle"] as const;
/** ΔE below which two marks are taken for one another; Airflow's failing pair was at 6.2, and at 0.4 for a deuteranope. */
const LEAST_DIFFERENCE = 12;

describe.each(Object.entries(THEMES))("colours of the %s theme", (_name, colours) => {
  const of = (name: string): Rgb => colours[name] ?? [0, 0, 0];

  it.each(["text", "muted", "accent", ...TONES])("%s is readable as text on the page and on a surface", (name) => {
    for (const ground of ["page", "surface"])
      expect(contrast(of(name), of(ground)), ground).toBeGreaterThanOrEqual(4.5);
  });

  it.each(TONES)("%s is readable on its own soft ground", (name) => {
    expect(contrast(of(name), of(`${name}-soft`))).toBeGreaterThanOrEqual(4.5);
  });

  it.each(Array.from({ length: 12 }, (_, index) => `series-${index}`))("%s is seen as a mark", (name) => {
    expect(contrast(of(name), of("surface"))).toBeGreaterThanOrEqual(3);
  });

  it("strong lines, which are borders of inputs, are seen", () => {
    expect(contrast(of("line-strong"), of("surface"))).toBeGreaterThanOrEqual(3);
  });

  const pairs = TONES.flatMap((one, index) => TONES.slice(index + 1).map((other) => [one, other] as const));
  it.each(pairs)("%s and %s differ, also for a deuteranope", (one, other) => {
    expect(difference(of(one), of(other), normal)).toBeGreaterThan(LEAST_DIFFERENCE);
    expect(difference(of(one), of(other), deuteranope)).toBeGreaterThan(LEAST_DIFFERENCE);
  });
});
