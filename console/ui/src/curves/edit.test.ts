// @vitest-environment node
import { describe, expect, test } from "vitest";
import { valueAt } from "./curve";
import {
  addKnot,
  held,
  type Limits,
  moveKnot,
  moveKnots,
  removeKnot,
  renormaliseOthers,
  roomOf,
  shapeKnot,
  weightForShare,
  wholeAt,
} from "./edit";
import { shareAt, withCurve, withRetired } from "./schedule";
import { curve, schedule } from "./testing";

const LIMITS: Limits = { firstFree: 100, lastStep: 1000 };
const RAMP = curve([0, 1, "step"], [200, 2, "linear"], [300, 4]);

describe("moving a knot", () => {
  test("stays between its neighbours and out of the past", () => {
    expect(roomOf(RAMP, 200, LIMITS)).toEqual([100, 299]);
    expect(moveKnot(RAMP, 200, { at: 5 }, LIMITS)[1]?.at).toBe(100);
    expect(moveKnot(RAMP, 200, { at: 400 }, LIMITS)[1]?.at).toBe(299);
    expect(moveKnot(RAMP, 300, { at: 4000 }, LIMITS)[2]?.at).toBe(1000);
  });

  test("takes whole steps and values of 0 or more", () => {
    expect(moveKnot(RAMP, 200, { at: 250.4, value: -3 }, LIMITS)[1]).toEqual({
      at: 250,
      value: 0,
      shape: "linear",
    });
    expect(moveKnot(RAMP, 200, { value: Number.NaN }, LIMITS)[1]?.value).toBe(2);
  });

  test("leaves a knot of the past where it is", () => {
    expect(moveKnot(RAMP, 0, { at: 150, value: 9 }, LIMITS)).toBe(RAMP);
    expect(removeKnot(RAMP, 0, LIMITS)).toBe(RAMP);
    expect(shapeKnot(RAMP, 0, "cosine", LIMITS)).toBe(RAMP);
  });
});

describe("adding and removing", () => {
  test("a new knot lies on the curve and does not bend a line", () => {
    const after = addKnot(RAMP, 250, LIMITS);
    expect(after[2]).toEqual({ at: 250, value: 3, shape: "linear" });
    for (const step of [200, 225, 250, 275, 300]) expect(valueAt(after, step)).toBe(valueAt(RAMP, step));
  });

  test("there is one knot a step, and none in the past", () => {
    expect(addKnot(RAMP, 200, LIMITS)).toBe(RAMP);
    expect(addKnot(RAMP, 99, LIMITS)).toBe(RAMP);
  });

  test("the last knot of a curve stays", () => {
    const one = curve([200, 1]);
    expect(removeKnot(one, 200, LIMITS)).toBe(one);
    expect(removeKnot(RAMP, 200, LIMITS)).toEqual([RAMP[0], RAMP[2]]);
  });
});

describe("moving several knots", () => {
  const before = schedule({ weights: { web: RAMP, code: curve([0, 1], [200, 5], [400, 6]) } });
  const refs = [
    { field: "weights.web", at: 200 },
    { field: "weights.code", at: 200 },
  ];

  test("moves all by the same way", () => {
    const { schedule: after, refs: moved } = moveKnots(before, refs, { at: 20, value: 0.5 }, LIMITS);
    expect(after.weights.web?.[1]).toEqual({ at: 220, value: 2.5, shape: "linear" });
    expect(after.weights.code?.[1]).toEqual({ at: 220, value: 5.5, shape: "step" });
    expect(moved.map((ref) => ref.at)).toEqual([220, 220]);
  });

  test("moves none where one has no room, or would go into the past", () => {
    expect(moveKnots(before, refs, { at: 100, value: 0 }, LIMITS).schedule).toBe(before);
    expect(moveKnots(before, refs, { at: -150, value: 0 }, LIMITS).schedule).toBe(before);
  });

  test("neighbours that move together keep their distance", () => {
    const both = [200, 300].map((at) => ({ field: "weights.web", at }));
    const { schedule: after } = moveKnots(before, both, { at: 150, value: 0 }, LIMITS);
    expect(after.weights.web?.map((knot) => knot.at)).toEqual([0, 350, 450]);
  });
});

describe("shares", () => {
  const three = schedule({ weights: { web: curve([0, 2]), code: curve([0, 1]), prose: curve([0, 1]) } });

  test("a weight for a share leaves the others in proportion", () => {
    const weight = weightForShare(three, "web", 200, 0.75) as number;
    const after = withCurve(three, "weights.web", addKnot(curve([0, 2]), 200, LIMITS, weight));
    expect(shareAt(after, "web", 200)).toBeCloseTo(0.75, 12);
    expect(shareAt(after, "code", 200)).toBeCloseTo(shareAt(after, "prose", 200), 12);
  });

  test("there is no weight for all of it, nor beside nothing", () => {
    expect(weightForShare(three, "web", 200, 1)).toBeNull();
    const alone = schedule({ weights: { web: curve([0, 2]) } });
    expect(weightForShare(alone, "web", 200, 0.5)).toBeNull();
  });

  test("renormalising scales the others and leaves what is locked", () => {
    const after = renormaliseOthers(three, "web", 200, LIMITS, { whole: 5, locked: new Set(["prose"]) });
    expect(wholeAt(after, 200)).toBe(5);
    expect(valueAt(after.weights.web ?? [], 200)).toBe(2);
    expect(valueAt(after.weights.prose ?? [], 200)).toBe(1);
    expect(valueAt(after.weights.code ?? [], 200)).toBe(2);
    expect(valueAt(after.weights.code ?? [], 199)).toBe(1);
  });

  test("renormalising does nothing where what stays is more than the whole, or in the past", () => {
    expect(renormaliseOthers(three, "web", 200, LIMITS, { whole: 1 })).toBe(three);
    expect(renormaliseOthers(three, "web", 50, LIMITS, { whole: 5 })).toBe(three);
  });

  test("a retired source has no share, and comes back with its curve", () => {
    const without = withRetired(three, "web", true);
    expect(shareAt(without, "web", 0)).toBe(0);
    expect(shareAt(without, "code", 0)).toBe(0.5);
    expect(withRetired(without, "web", false)).toEqual(three);
  });
});

test("holding the mixture makes constants of what the weights are at a step", () => {
  const after = held(schedule({ weights: { web: RAMP } }), 250);
  expect(after.weights.web).toEqual(curve([0, 3]));
  expect(after.seq_len).toEqual(curve([0, 4096]));
});
