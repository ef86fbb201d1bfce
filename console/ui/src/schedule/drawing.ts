import type { Curve } from "../curves/curve";
import { polyline } from "../curves/curve";
import { sourceOf, weightField } from "../curves/schedule";
import type { Span } from "./view";

const COLOURS = 12;
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

/** How a field looks: the same wherever it is drawn, by its place among the run's sources. */
export interface Look {
  readonly colour: string;
  /** Sources beyond the twelfth have the same colours again, with another dash. */
  readonly dash: string;
}

export function lookOf(field: string, sources: readonly string[]): Look {
  const source = sourceOf(field);
  const index = source === null ? (field === "microbatches" ? 0 : 2) : Math.max(0, sources.indexOf(source));
  return {
    colour: `var(--lm-series-${index % COLOURS})`,
    dash: DASHES[Math.floor(index / COLOURS) % DASHES.length] as string,
  };
}

export const MOST_DRAWN = 8;

/** Fields that are drawn: of hundreds of sources the selected one and the `MOST_DRAWN` largest. */
export function fieldsToDraw(largest: readonly string[], active: string): string[] {
  if (sourceOf(active) === null) return [active];
  const top = largest.map(weightField);
  return top.some((field) => field === active) ? top : [...top.slice(0, MOST_DRAWN - 1), active];
}

/** Steps and values to pixels. */
export interface Scales {
  readonly x: (step: number) => number;
  readonly y: (value: number) => number;
  readonly step: (x: number) => number;
  readonly value: (y: number) => number;
}

export interface Frame {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

export function scalesOf(span: Span, top: number, frame: Frame): Scales {
  const perStep = frame.width / (span.to - span.from);
  const perValue = frame.height / top;
  return {
    x: (step) => frame.left + (step - span.from) * perStep,
    y: (value) => frame.top + frame.height - value * perValue,
    step: (x) => span.from + (x - frame.left) / perStep,
    value: (y) => (frame.top + frame.height - y) / perValue,
  };
}

/** A curve between two steps as an SVG path; empty where there is nothing of it in view. */
export function pathOf(curve: Curve, from: number, to: number, scales: Scales): string {
  if (from >= to) return "";
  const points = polyline(curve, from, to).map(([at, value]) => `${px(scales.x(at))},${px(scales.y(value))}`);
  return `M${points.join("L")}`;
}

/** An area between two rows of shares as an SVG path. */
export function areaOf(
  steps_X: readonly number[],
  low_X: readonly number[],
  high_X: readonly number[],
  scales: Scales,
): string {
  const over = steps_X.map((step, x) => `${px(scales.x(step))},${px(scales.y(high_X[x] as number))}`);
  const under = steps_X.map((step, x) => `${px(scales.x(step))},${px(scales.y(low_X[x] as number))}`).reverse();
  return `M${over.join("L")}L${under.join("L")}Z`;
}

function px(value: number): string {
  return value.toFixed(1);
}

/** Places for labels near the ends of their curves, at least `apart` px from each other, in the curves' order. */
export function spread(wanted: readonly number[], apart: number, low: number, high: number): number[] {
  const order = wanted.map((_, i) => i).sort((a, b) => (wanted[a] as number) - (wanted[b] as number));
  const placed = [...wanted];
  let last = low - apart;
  for (const i of order) {
    last = Math.max(placed[i] as number, last + apart);
    placed[i] = last;
  }
  let next = high + apart;
  for (const i of order.reverse()) {
    next = Math.min(placed[i] as number, next - apart);
    placed[i] = next;
  }
  return placed;
}

/** Which revision was, is and will be in force in a span, as [first step, step after the last, revision]. */
export function stretchesIn(
  timeline: readonly { from_step: number; revision: number }[],
  from: number,
  to: number,
): [number, number, number][] {
  return timeline
    .map((each, i): [number, number, number] => [
      Math.max(from, i === 0 ? 0 : each.from_step),
      Math.min(to, timeline[i + 1]?.from_step ?? to),
      each.revision,
    ])
    .filter(([first, last]) => first < last);
}
