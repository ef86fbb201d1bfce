// @vitest-environment node
import { expect, test } from "vitest";
import { pairOf, validateSearch } from "./search";
import { changedText, standingOf } from "./timeline";

const STRETCHES = [
  { from_step: 0, revision: 0 },
  { from_step: 50, revision: 2 },
  { from_step: 80, revision: 3 },
];

test("a revision is in force, was, will be, or was overtaken before it began", () => {
  expect([0, 1, 2, 3].map((n) => standingOf(n, STRETCHES, 60))).toEqual(["earlier", "overtaken", "in force", "later"]);
  expect(standingOf(0, [{ from_step: 0, revision: 0 }], 0)).toBe("in force");
});

test("what changed is told in a few words", () => {
  expect(changedText(["weights.web", "seq_len"])).toBe("web, C");
  expect(changedText(["a", "b", "c", "d"].map((name) => `weights.${name}`))).toBe("4 sources");
  expect(changedText([])).toBe("nothing");
});

test("the newest is compared with the one before it, unless the address says else", () => {
  expect(pairOf({}, 0)).toBeNull();
  expect(pairOf({}, 5)).toEqual({ left: 4, right: 5 });
  expect(pairOf({ right: 3 }, 5)).toEqual({ left: 2, right: 3 });
  expect(pairOf({ left: 1, right: 99 }, 5)).toEqual({ left: 1, right: 5 });
  expect(validateSearch({ left: 3, right: "x", more: 1 })).toEqual({ left: 3 });
});
