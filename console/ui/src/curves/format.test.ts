// @vitest-environment node
import { expect, test } from "vitest";
import { percent, weight } from "./format";
import { plain } from "./testing";

test("a share has as many digits as one reads at a glance", () => {
  expect([0, 0.4, 0.123, 0.0312, 0.00217, 1].map((n) => plain(percent(n)))).toEqual([
    "0 %",
    "40 %",
    "12.3 %",
    "3.1 %",
    "0.22 %",
    "100 %",
  ]);
});

test("a weight has no noise of binary fractions", () => {
  expect([0, 0.1 + 0.2, 2, 0.000012345].map(weight)).toEqual(["0", "0.3", "2", "0.00001234"]);
});
