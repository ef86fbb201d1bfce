// @vitest-environment node
import { describe, expect, test } from "vitest";
import { changedKnots, curveText, diffText } from "./diff";
import { withCurve, withRetired } from "./schedule";
import { curve, plain, schedule } from "./testing";

const BASE = schedule();
const text = (after: typeof BASE, from = 1000) => diffText(BASE, after, from).map(plain);

describe("the summary in words", () => {
  test("a ramp names both shares, both steps and the shape", () => {
    // 0.6 / 0.4 = 40 %; 0.7333.. / (0.7333.. + 0.6) = 55 %
    const ramp = curve([0, 0.4], [12_000, 0.4, "cosine"], [20_000, (0.55 / 0.45) * 0.6]);
    expect(text(withCurve(BASE, "weights.web", ramp))).toEqual(["web 40 → 55 % from step 12 000 to 20 000, cosine"]);
  });

  test("a value that holds from a step on is a jump", () => {
    const jump = curve([0, 0.4], [12_000, 0.6]);
    expect(text(withCurve(BASE, "weights.web", jump))).toEqual(["web 40 → 50 % at step 12 000"]);
  });

  test("a changed constant jumps at the step from which the revision is in force", () => {
    expect(text(withCurve(BASE, "weights.web", curve([0, 0.2])))).toEqual(["web 40 → 25 % at step 1 000"]);
  });

  test("G and C are counts", () => {
    const after = withCurve(BASE, "seq_len", curve([0, 4096], [5000, 4096, "linear"], [9000, 8192]));
    expect(text(after)).toEqual(["C (tokens) 4 096 → 8 192 from step 5 000 to 9 000, linear"]);
  });

  test("a source that is retired or taken up again is said to be", () => {
    const without = withRetired(BASE, "web", true);
    expect(text(without)).toEqual(["web 40 % → retired at step 1 000"]);
    expect(diffText(without, BASE, 1000).map(plain)).toEqual(["web: taken up again", "web 0 → 40 % at step 1 000"]);
  });

  test("a ramp that is taken away leaves the curve level", () => {
    const ramp = withCurve(BASE, "weights.web", curve([0, 0.4, "linear"], [9000, 0.6]));
    const level = withCurve(BASE, "weights.web", curve([0, 0.4]));
    expect(diffText(ramp, level, 0).map(plain)).toEqual(["web 50 → 40 % at step 9 000"]);
  });

  test("what changes only in the past is said to have no effect", () => {
    const after = withCurve(BASE, "weights.web", curve([0, 0.1], [500, 0.4]));
    expect(text(after)).toEqual(["web: only steps before 1 000 change"]);
  });

  test("nothing changed gives no line", () => {
    expect(text(schedule())).toEqual([]);
  });
});

test("changed knots have what was and what is, by step", () => {
  const before = withCurve(BASE, "weights.web", curve([0, 1], [10, 2], [20, 3]));
  const after = withCurve(BASE, "weights.web", curve([0, 1], [10, 5], [30, 3]));
  expect(changedKnots(before, after).map((row) => [row.at, row.before?.value, row.after?.value])).toEqual([
    [10, 2, 5],
    [20, 3, undefined],
    [30, undefined, 3],
  ]);
});

test("a curve in words", () => {
  expect(plain(curveText(curve([0, 2])))).toBe("2 throughout");
  expect(plain(curveText(curve([0, 2, "linear"], [12_000, 3], [13_000, 4])))).toBe(
    "2 from 0, linear to 3 at 12 000, 4 at 13 000",
  );
  expect(curveText(undefined)).toBe("no weight");
});
