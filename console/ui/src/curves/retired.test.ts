import { expect, it } from "vitest";
import { withRetired } from "./schedule";

const ramp = (value: number) => [{ at: 0, value, shape: "step" as const }];
const schedule = {
  weights: { web: ramp(1), code: ramp(1) },
  microbatches: ramp(8),
  seq_len: ramp(256),
  retired: ["old"],
};

it("retires a source beside those that are, and leaves the rest of the schedule alone", () => {
  expect(withRetired(schedule, "code", true)).toEqual({ ...schedule, retired: ["code", "old"] });
});

it("takes up a source again, and one that is in use stays so", () => {
  expect(withRetired(schedule, "old", false).retired).toEqual([]);
  expect(withRetired(schedule, "web", false).retired).toEqual(["old"]);
});
