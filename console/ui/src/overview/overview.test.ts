import { describe, expect, it } from "vitest";
import { scaleOf } from "./scale";
import { mergeWaits, SHOWN_STEPS } from "./waits";

const waits = (steps: number[]) => ({
  step: steps,
  max_s: steps.map(() => 0.1),
  mean_s: steps.map(() => 0.05),
  num_ranks: steps.map(() => 4),
});

describe("mergeWaits", () => {
  it("replaces what was heard of a step, and keeps who said so", () => {
    const merged = mergeWaits(waits([4, 5]), [[5, 0.4, 0.2]]);
    expect(merged).toEqual({ step: [4, 5], max_s: [0.1, 0.4], mean_s: [0.05, 0.2], num_ranks: [4, 4] });
  });

  it("takes new steps in order, whatever order they come in", () => {
    const heard: [number, number, number][] = [
      [8, 0.3, 0.3],
      [6, 0.2, 0.1],
    ];
    expect(mergeWaits(waits([5]), heard).step).toEqual([5, 6, 8]);
  });

  it("keeps the last steps alone, so that memory stays bounded", () => {
    const many = Array.from({ length: 500 }, (_, step): [number, number, number] => [step, 0.1, 0.1]);
    const merged = mergeWaits(waits([]), many);
    expect(merged.step).toHaveLength(SHOWN_STEPS);
    expect(merged.step.at(-1)).toBe(499);
  });
});

describe("scaleOf", () => {
  const steps = Array.from({ length: 60 }, (_, step) => step);

  it("reaches to the largest wait where waits are alike", () => {
    expect(
      scaleOf(
        steps,
        steps.map((step) => 0.1 + step / 600),
        120,
      ).top,
    ).toBeCloseTo(0.1 + 59 / 600);
  });

  it("cuts one wait off that would flatten all others", () => {
    const spiked = steps.map((step) => (step === 3 ? 5 : 0.01));
    expect(scaleOf(steps, spiked, 120).top).toBeCloseTo(0.02);
  });

  it("keeps bars narrow while there are few steps", () => {
    expect(scaleOf([0, 1], [0.1, 0.1], 120)).toMatchObject({ first: 0, slots: 40 });
  });
});
