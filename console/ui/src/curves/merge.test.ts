// @vitest-environment node
import { expect, test } from "vitest";
import { merge } from "./merge";
import { withCurve, withRetired } from "./schedule";
import { curve, schedule } from "./testing";

const BASE = schedule();
const TWICE = curve([0, 2]);
const THRICE = curve([0, 3]);

test("sources that one side alone changed merge by themselves", () => {
  const merged = merge(BASE, withCurve(BASE, "weights.web", TWICE), withCurve(BASE, "weights.code", THRICE));
  expect(merged.schedule.weights).toEqual({ web: TWICE, code: THRICE });
  expect(merged.fields).toEqual([
    { field: "weights.code", fate: "theirs" },
    { field: "weights.web", fate: "mine" },
  ]);
  expect(merged.undecided).toEqual([]);
});

test("a source that both changed is a conflict until it is decided, and mine until then", () => {
  const mine = withCurve(BASE, "weights.web", TWICE);
  const theirs = withCurve(BASE, "weights.web", THRICE);
  expect(merge(BASE, mine, theirs).undecided).toEqual(["weights.web"]);
  expect(merge(BASE, mine, theirs).schedule.weights.web).toBe(TWICE);
  const decided = merge(BASE, mine, theirs, { "weights.web": "theirs" });
  expect(decided.undecided).toEqual([]);
  expect(decided.schedule.weights.web).toBe(THRICE);
});

test("the same change on both sides is no conflict", () => {
  const merged = merge(BASE, withCurve(BASE, "seq_len", TWICE), withCurve(BASE, "seq_len", curve([0, 2])));
  expect(merged.fields).toEqual([{ field: "seq_len", fate: "both alike" }]);
});

test("retiring a source that they weigh anew is a conflict", () => {
  const merged = merge(BASE, withRetired(BASE, "web", true), withCurve(BASE, "weights.web", TWICE));
  expect(merged.undecided).toEqual(["weights.web"]);
  expect(merged.schedule.retired).toEqual(["web"]);
});

test("a source that they added is in, one that I took out is out", () => {
  const { web, ...others } = BASE.weights;
  expect(web).toBeDefined();
  const merged = merge(BASE, { ...BASE, weights: others }, withCurve(BASE, "weights.new", TWICE));
  expect(Object.keys(merged.schedule.weights).sort()).toEqual(["code", "new"]);
});
