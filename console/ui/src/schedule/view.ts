import { type Curve, countAt } from "../curves/curve";
import { curveIn, type Schedule, sourceOf } from "../curves/schedule";
import { niceAbove } from "../curves/snap";
import { clamp } from "../ui/clamp";

/** Steps that are in view. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** What the planner rounds G and C down to, and how many rows of C tokens a microbatch has. */
export interface Multiples {
  readonly g: number;
  readonly c: number;
  readonly rows: number;
}

const LEAST_SPAN = 20;

/** The whole run: to its end where that is known, else some way beyond the last knot and the present. */
export function wholeSpan(schedules: readonly Schedule[], firstFree: number, endStep: number | null): Span {
  const knots = schedules.flatMap((schedule) => allCurves(schedule).flatMap((curve) => curve.map((knot) => knot.at)));
  const last = knots.reduce((top, at) => Math.max(top, at), 0);
  const beyond = Math.max(last * 1.15, firstFree * 1.5, firstFree + LEAST_SPAN);
  const to = endStep !== null && endStep > firstFree ? endStep : roundUp(beyond);
  return { from: 0, to: Math.max(to, LEAST_SPAN) };
}

/** From the present on: a little of the past, and the next tenth of the run or what has knots. */
export function nearSpan(whole: Span, firstFree: number): Span {
  const width = Math.max(LEAST_SPAN, Math.round((whole.to - whole.from) / 8));
  const from = Math.max(0, firstFree - Math.round(width / 5));
  return { from, to: from + width };
}

/** Nearer by half, or further by twice, around a step; never wider than the whole. */
export function zoomed(span: Span, factor: number, around: number, whole: Span): Span {
  const width = clamp((span.to - span.from) * factor, LEAST_SPAN, whole.to - whole.from);
  const share = (clamp(around, span.from, span.to) - span.from) / (span.to - span.from);
  return within({ from: around - width * share, to: around + width * (1 - share) }, whole);
}

/** Moved by a part of its width. */
export function panned(span: Span, part: number, whole: Span): Span {
  const by = (span.to - span.from) * part;
  return within({ from: span.from + by, to: span.to + by }, whole);
}

function within(span: Span, whole: Span): Span {
  const width = span.to - span.from;
  const from = clamp(span.from, whole.from, Math.max(whole.from, whole.to - width));
  return { from: Math.round(from), to: Math.max(Math.round(from + width), Math.round(from) + 1) };
}

/** The largest value that is drawn, with air above it. */
export function topOf(curves: readonly Curve[], span: Span): number {
  const values = curves.flatMap((curve) => {
    const seen = curve.filter(
      (knot, i) => knot.at <= span.to && (curve[i + 1]?.at ?? Number.POSITIVE_INFINITY) >= span.from,
    );
    const after = curve.find((knot) => knot.at > span.to);
    return [...seen, ...(after ? [after] : [])].map((knot) => knot.value);
  });
  const top = values.reduce((most, value) => Math.max(most, value), 0);
  return top > 0 ? niceTop(top * 1.12) : 1;
}

function niceTop(value: number): number {
  const unit = niceAbove(value / 10);
  return Number((Math.ceil(value / unit - 1e-9) * unit).toPrecision(12));
}

function roundUp(value: number): number {
  const unit = Math.max(1, niceAbove(value / 20));
  return Math.ceil(value / unit) * unit;
}

/** Round values between two, at most `count`. */
export function ticks(from: number, to: number, count: number): number[] {
  const unit = niceAbove((to - from) / Math.max(1, count));
  const first = Math.ceil(from / unit - 1e-9);
  const last = Math.floor(to / unit + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * unit).toPrecision(12)));
}

/** Tokens of the steps below a step as the schedule has them, all ranks together: the sum of G x C. */
export function tokensBefore(schedule: Schedule, step: number, multiples: Multiples, pieces = 256): number {
  const edges = [...schedule.microbatches, ...schedule.seq_len]
    .map((knot) => knot.at)
    .filter((at) => at > 0 && at < step);
  const stops = [...new Set([0, ...edges, step])].sort((a, b) => a - b);
  let sum = 0;
  for (let i = 0; i + 1 < stops.length; i++) {
    sum += between(schedule, stops[i] as number, stops[i + 1] as number, multiples, pieces);
  }
  return sum;
}

function between(schedule: Schedule, from: number, to: number, multiples: Multiples, pieces: number): number {
  const stride = Math.max(1, Math.ceil((to - from) / pieces));
  let sum = 0;
  for (let at = from; at < to; at += stride) {
    const width = Math.min(stride, to - at);
    sum += tokensAt(schedule, at + Math.floor((width - 1) / 2), multiples) * width;
  }
  return sum;
}

function tokensAt(schedule: Schedule, step: number, { g, c, rows }: Multiples): number {
  return countAt(schedule.microbatches, step, g) * countAt(schedule.seq_len, step, c) * rows;
}

/** Steps at which the tokens so far are round numbers, for an axis of tokens. */
export function tokenTicks(
  schedule: Schedule,
  span: Span,
  multiples: Multiples,
  count: number,
): { step: number; tokens: number }[] {
  const before = tokensBefore(schedule, span.from, multiples);
  const after = tokensBefore(schedule, span.to, multiples);
  return ticks(before, after, count).map((tokens) => ({
    tokens,
    step: stepOf(schedule, tokens, span, multiples),
  }));
}

function stepOf(schedule: Schedule, tokens: number, span: Span, multiples: Multiples): number {
  let [low, high] = [span.from, span.to];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (tokensBefore(schedule, middle, multiples, 64) < tokens) low = middle;
    else high = middle;
  }
  return high;
}

function allCurves(schedule: Schedule): Curve[] {
  return [...Object.values(schedule.weights), schedule.microbatches, schedule.seq_len];
}

/** Curves of fields that are drawn together. */
export function curvesOf(schedule: Schedule, fields: readonly string[]): Curve[] {
  return fields.map((field) => curveIn(schedule, field)).filter((curve) => curve !== undefined);
}

/** What a field's values are multiples of; undefined for weights. */
export function multipleOf(field: string, multiples: Multiples): number | undefined {
  if (sourceOf(field) !== null) return undefined;
  return field === "microbatches" ? multiples.g : multiples.c;
}
