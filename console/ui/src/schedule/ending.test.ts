import { expect, test } from "vitest";
import { overReason } from "./ending";

test("changes are over once every step of the run is bound", () => {
  expect(overReason(60, 59)).toBe("");
  expect(overReason(null, 1_000)).toBe("");
  expect(overReason(60, 60)).toContain("ends before step 60");
});
