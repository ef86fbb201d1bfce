// @vitest-environment node
import { expect, test } from "vitest";
import { sharesAt, withCurve } from "../curves/schedule";
import { curve, schedule } from "../curves/testing";
import { sample, stack, stepsToDraw, topSources } from "./stack";

const MANY = schedule({
  weights: Object.fromEntries(
    Array.from({ length: 306 }, (_, i) => [`s${i}`, curve([0, i + 1, "linear"], [100, 306 - i])]),
  ),
});

test("bands lie on each other, with the rest on top, and fill the whole", () => {
  const steps = stepsToDraw(MANY, 0, 200);
  const bands = stack(MANY, ["s0", "s305"], steps);
  expect(bands.map((band) => band.name)).toEqual(["s0", "s305", "others"]);
  expect(bands[1]?.low_X).toBe(bands[0]?.high_X);
  expect(bands[2]?.high_X.every((high) => high === 1)).toBe(true);
  const at50 = steps.indexOf(50);
  expect(bands[0]?.high_X[at50]).toBeCloseTo(sharesAt(MANY, 50).get("s0") as number, 12);
});

test("there is no rest where all are named, and nothing of a source that is retired", () => {
  const two = schedule({ retired: ["web"] });
  const bands = stack(two, ["web", "code"], [0, 10]);
  expect(bands.map((band) => [band.name, band.high_X])).toEqual([
    ["web", [0, 0]],
    ["code", [1, 1]],
  ]);
});

test("the top sources are those with the largest share anywhere in view", () => {
  expect(topSources(MANY, [0, 100], 3)).toEqual(["s0", "s305", "s1"]);
});

test("a step in a curve is drawn as one: the steps on both sides of it are looked at", () => {
  const steps = stepsToDraw(schedule({ weights: { web: curve([0, 1], [333, 2]) } }), 0, 10_000, 10);
  expect(steps).toContain(332);
  expect(steps).toContain(333);
});

test("a curve is sampled anew only when it or the steps changed", () => {
  const steps = [0, 1, 2];
  const ramp = curve([0, 1, "linear"], [2, 3]);
  expect(sample(ramp, steps)).toBe(sample(ramp, steps));
  expect(sample(ramp, [0, 2])).toEqual([1, 3]);
  expect(stack(withCurve(schedule(), "weights.web", ramp), ["web"], steps)[0]?.high_X[2]).toBeCloseTo(3 / 3.6, 12);
});
