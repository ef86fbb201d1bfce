import { expect, test } from "vitest";
import { percent, tokens, weight, whole } from "./format";
import { plain } from "./testing";

test("numbers are grouped by three", () => {
  expect([0, 999, 12_000, 1_234_567, -4000].map((n) => plain(whole(n)))).toEqual([
    "0",
    "999",
    "12 000",
    "1 234 567",
    "−4 000",
  ]);
});

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

test("tokens have a unit, weights no noise", () => {
  expect([950, 12_345, 3_210_000, 4.56e12].map((n) => plain(tokens(n)))).toEqual([
    "950",
    "12.3 k",
    "3.21 M",
    "4.56 T",
  ]);
  expect([0, 0.1 + 0.2, 2, 0.000012345].map(weight)).toEqual(["0", "0.3", "2", "0.00001234"]);
});
