// @vitest-environment node
import { describe, expect, test } from "vitest";
import table from "../../../../tests/schedules/curve_cases.json";
import { type Curve, countAt, indexAfter, polyline, valueAt } from "./curve";
import { curve } from "./testing";

interface Case {
  name: string;
  knots: Curve;
  values: [number, number][];
}

const CASES = table.cases as unknown as Case[];

describe("the table that Python and TypeScript share", () => {
  test.each(CASES)("$name", ({ knots, values }) => {
    for (const [step, value] of values) {
      const found = valueAt(knots, step);
      expect(Math.abs(found - value), `step ${step}: ${found} is not ${value}`).toBeLessThanOrEqual(
        Math.max(1e-15, Math.abs(value) * 1e-12),
      );
    }
  });

  test("has every shape between two knots", () => {
    const shapes = new Set(CASES.flatMap((each) => each.knots.slice(0, -1).map((knot) => knot.shape)));
    expect([...shapes].sort()).toEqual(["cosine", "linear", "step"]);
  });
});

test("counts are cut to an integer, then rounded down to a multiple, as the planner does", () => {
  const ramp = curve([0, 10, "linear"], [10, 33.9]);
  expect([0, 5, 10].map((step) => countAt(ramp, step, 8))).toEqual([8, 16, 32]);
});

test("the first knot after a step is found for steps before, on and after knots", () => {
  const ramp = curve([3, 1], [5, 2], [9, 3]);
  expect([0, 3, 4, 5, 8, 9, 10].map((step) => indexAfter(ramp, step))).toEqual([0, 1, 1, 2, 2, 3, 3]);
});

test("a line goes through all knots in view, stays level on steps and bends on cosines", () => {
  const points = polyline(curve([0, 1, "step"], [10, 2, "linear"], [20, 4, "cosine"], [30, 0]), 5, 40, 4);
  expect(points[0]).toEqual([5, 1]);
  expect(points).toContainEqual([10, 1]);
  expect(points).toContainEqual([10, 2]);
  expect(points).toContainEqual([20, 4]);
  expect(points).toContainEqual([25, 2]);
  expect(points.at(-1)).toEqual([40, 0]);
  expect(points.map(([step]) => step)).toEqual(points.map(([step]) => step).sort((a, b) => a - b));
});
