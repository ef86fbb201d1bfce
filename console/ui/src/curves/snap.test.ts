// @vitest-environment node
import { expect, test } from "vitest";
import { gridFor, niceAbove, snap } from "./snap";

test("grid units are 1, 2 or 5 times a power of ten", () => {
  expect([0.003, 0.02, 0.31, 1, 3.2, 7, 120].map(niceAbove)).toEqual([0.005, 0.02, 0.5, 1, 5, 10, 200]);
});

test("a grid is at least 6 px wide, and whole in steps", () => {
  const grid = gridFor({ from: 0, to: 100_000, top: 1 }, { width: 1000, height: 300 });
  expect(grid).toEqual({ step: 1000, value: 0.02 });
  expect(gridFor({ from: 0, to: 10, top: 1 }, { width: 1000, height: 300 }).step).toBe(1);
});

test("G and C snap to what the planner rounds down to", () => {
  expect(gridFor({ from: 0, to: 10, top: 8192 }, { width: 100, height: 300 }, 128).value).toBe(256);
});

test("snapping leaves no noise of binary fractions", () => {
  expect(snap(0.30000001, 0.1)).toBe(0.3);
  expect(snap(12_345, 500)).toBe(12_500);
});
