// @vitest-environment node
import { expect, test } from "vitest";
import { curve, schedule } from "../curves/testing";
import { nearSpan, panned, ticks, tokensBefore, tokenTicks, topOf, wholeSpan, zoomed } from "./view";

const WHOLE = { from: 0, to: 10_000 };
const ONE = { g: 1, c: 16, rows: 1 };

test("the whole run ends at its end, or some way beyond the last knot and the present", () => {
  expect(wholeSpan([schedule()], 100, 800)).toEqual({ from: 0, to: 800 });
  const ramp = schedule({ weights: { web: curve([0, 1], [20_000, 2]) } });
  expect(wholeSpan([ramp], 100, null).to).toBeGreaterThan(20_000);
  expect(wholeSpan([schedule()], 40_000, null).to).toBeGreaterThanOrEqual(60_000);
});

test("zooming keeps the step under the pointer, and never leaves the run", () => {
  expect(zoomed(WHOLE, 0.5, 5000, WHOLE)).toEqual({ from: 2500, to: 7500 });
  expect(zoomed({ from: 9000, to: 10_000 }, 4, 10_000, WHOLE)).toEqual({ from: 6000, to: 10_000 });
  expect(zoomed(WHOLE, 9, 0, WHOLE)).toEqual(WHOLE);
  expect(panned({ from: 8000, to: 10_000 }, 0.5, WHOLE)).toEqual({ from: 8000, to: 10_000 });
  expect(nearSpan(WHOLE, 5000)).toEqual({ from: 4750, to: 6000 });
});

test("the top has air above what is drawn, counting the curves on their way out of view", () => {
  expect(topOf([curve([0, 1, "linear"], [200, 4])], { from: 0, to: 100 })).toBeGreaterThanOrEqual(4);
  expect(topOf([curve([0, 9], [50, 1])], { from: 60, to: 100 })).toBeLessThan(2);
  expect(topOf([], WHOLE)).toBe(1);
});

test("ticks are round", () => {
  expect(ticks(130, 1000, 5)).toEqual([200, 400, 600, 800, 1000]);
  expect(ticks(0, 0.5, 5)).toEqual([0, 0.1, 0.2, 0.3, 0.4, 0.5]);
});

test("tokens before a step are the sum of G x C, rounded down as the planner does", () => {
  const ramp = schedule({ microbatches: curve([0, 4], [10, 8]), seq_len: curve([0, 100]) });
  expect(tokensBefore(ramp, 20, ONE)).toBe(10 * 4 * 96 + 10 * 8 * 96);
});

test("an axis of tokens has its marks where the tokens are round", () => {
  const flat = schedule({ microbatches: curve([0, 10]), seq_len: curve([0, 100]) });
  expect(tokenTicks(flat, { from: 0, to: 1000 }, { g: 1, c: 1, rows: 1 }, 4)).toEqual(
    [0, 500_000, 1_000_000].map((tokens) => ({ tokens, step: tokens === 0 ? 1 : tokens / 1000 })),
  );
});
