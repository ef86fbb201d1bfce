// @vitest-environment node
import { expect, test } from "vitest";
import { curve } from "../curves/testing";
import { fieldsToDraw, lookOf, MOST_DRAWN, pathOf, scalesOf, spread, stretchesIn } from "./drawing";

const SCALES = scalesOf({ from: 0, to: 100 }, 10, { left: 0, top: 0, width: 100, height: 10 });

test("pixels and steps are each other's inverse", () => {
  expect(SCALES.step(SCALES.x(37))).toBeCloseTo(37, 9);
  expect(SCALES.value(SCALES.y(2.5))).toBeCloseTo(2.5, 9);
});

test("a path has a corner where the curve has one", () => {
  expect(pathOf(curve([0, 1], [50, 3]), 0, 100, SCALES)).toBe("M0.0,9.0L50.0,9.0L50.0,7.0L100.0,7.0");
  expect(pathOf(curve([0, 1]), 100, 100, SCALES)).toBe("");
});

test("the selected source is drawn however small it is, G and C by themselves", () => {
  const largest = Array.from({ length: MOST_DRAWN }, (_, i) => `s${i}`);
  const drawn = fieldsToDraw(largest, "weights.s19");
  expect(drawn.length).toBe(8);
  expect(drawn).toContain("weights.s19");
  expect(fieldsToDraw(largest, "weights.s3")).toEqual(largest.map((name) => `weights.${name}`));
  expect(fieldsToDraw(largest, "seq_len")).toEqual(["seq_len"]);
});

test("sources beyond the twelfth look like none of the first twelve", () => {
  const sources = Array.from({ length: 48 }, (_, i) => `s${i}`);
  const looks = sources.map((name) => JSON.stringify(lookOf(`weights.${name}`, sources)));
  expect(new Set(looks).size).toBe(48);
});

test("labels keep apart, in order and in the frame", () => {
  const placed = spread([50, 51, 52, 2], 10, 0, 60);
  expect(placed[3]).toBe(2);
  expect([placed[0], placed[1], placed[2]]).toEqual([40, 50, 60]);
});

test("each step of a span belongs to the revision in force", () => {
  const timeline = [
    { from_step: 0, revision: 0 },
    { from_step: 50, revision: 2 },
    { from_step: 80, revision: 3 },
  ];
  expect(stretchesIn(timeline, 60, 200)).toEqual([
    [60, 80, 2],
    [80, 200, 3],
  ]);
});
