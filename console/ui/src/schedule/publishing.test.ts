// @vitest-environment node
import { expect, test } from "vitest";
import type { Model } from "../api/client";
import { problemOf } from "../api/problem";
import { toJson } from "../curves/schedule";
import { schedule } from "../curves/testing";
import { type Change, outcomeOf, refusalOf } from "./publishing";

const MINE = schedule();
const CHANGE: Change = { is: "publish", schedule: MINE };
const FORM = { message: "more code", atStep: null };
const revision = (changes: Partial<Model<"RevisionView">> = {}): Model<"RevisionView"> => ({
  revision: 4,
  base: 3,
  from_step: 120,
  author: "ada",
  message: "more code",
  created_at: 0,
  changed: [],
  schedule: toJson(MINE) as Model<"ScheduleSpec">,
  ...changes,
});
const stale = (newest: Model<"RevisionView">) =>
  problemOf(412, { code: "STALE", detail: "moved", details: { current: 4, revision: newest } });

test("a reply is a revision now, or a publish that waits", () => {
  expect(outcomeOf({ revision: revision(), scheduled: null })).toEqual({ is: "revision", revision: 4, fromStep: 120 });
  const scheduled = { number: 2, at_step: 500 } as Model<"ScheduledView">;
  expect(outcomeOf({ revision: null, scheduled })).toEqual({ is: "scheduled", number: 2, atStep: 500 });
});

test("a base that moved keeps the draft and names the newest", () => {
  expect(refusalOf(stale(revision({ author: "bob" })), CHANGE, FORM, "ada")).toEqual({ is: "moved", newest: 4 });
  expect(refusalOf(stale(revision({ message: "else" })), CHANGE, FORM, "ada")).toEqual({ is: "moved", newest: 4 });
});

test("a base that moved by this very publish, whose answer was lost, is a success", () => {
  expect(refusalOf(stale(revision()), CHANGE, FORM, "ada")).toEqual({ is: "revision", revision: 4, fromStep: 120 });
});

test("a step that is over is told with the first that is not", () => {
  const late = problemOf(409, { code: "CONFLICT", detail: "bound", details: { first_free: 130 } });
  expect(refusalOf(late, CHANGE, FORM, "ada")).toEqual({ is: "too late", firstFree: 130, problem: late });
  const other = problemOf(422, { code: "SPEC", detail: "no" });
  expect(refusalOf(other, CHANGE, FORM, "ada")).toEqual({ is: "refused", problem: other });
});
