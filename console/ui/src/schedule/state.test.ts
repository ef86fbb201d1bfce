// @vitest-environment node
import { describe, expect, test } from "vitest";
import { valueAt } from "../curves/curve";
import { curve, schedule } from "../curves/testing";
import { draftOf, type EditorAction, type EditorState, edit, editorOf } from "./state";

const LIMITS = { firstFree: 100, lastStep: 1000 };
const BASE = schedule({
  weights: { web: curve([0, 1], [200, 2, "linear"], [300, 4]), code: curve([0, 1], [200, 5]) },
});
const KNOT = { field: "weights.web", at: 200 };

const start = () => edit(editorOf(3, BASE, LIMITS), { type: "select", refs: [KNOT] });
const all = (state: EditorState, ...actions: EditorAction[]) => actions.reduce(edit, state);
const web = (state: EditorState) => draftOf(state).weights.web;

test("a knot that is nudged keeps its selection, and held keys are one entry of the history", () => {
  const by = { at: 10, value: 0 };
  const after = all(start(), { type: "nudge", by }, { type: "nudge", by });
  expect(after.selected).toEqual([{ field: "weights.web", at: 220 }]);
  expect(web(after)?.[1]?.at).toBe(220);
  expect(draftOf(edit(after, { type: "undo" }))).toBe(BASE);
});

test("an undo lets go of knots that are not there any more", () => {
  const after = all(start(), { type: "add", field: "weights.code", at: 500 });
  expect(after.selected).toEqual([{ field: "weights.code", at: 500 }]);
  expect(edit(after, { type: "undo" }).selected).toEqual([]);
});

test("two drags are two entries, the moves of one are one", () => {
  const drag = (at: number, to: number): EditorAction => ({
    type: "place",
    ref: { field: "weights.web", at },
    at: to,
    isDrag: true,
  });
  const after = all(start(), drag(200, 210), drag(210, 220), { type: "settle" }, drag(220, 230));
  expect(web(edit(after, { type: "undo" }))?.[1]?.at).toBe(220);
  expect(draftOf(all(after, { type: "undo" }, { type: "undo" }))).toBe(BASE);
});

test("a locked source is not edited, by whatever way", () => {
  const locked = edit(start(), { type: "lock", source: "web" });
  const after = all(
    locked,
    { type: "nudge", by: { at: 1, value: 1 } },
    { type: "place", ref: KNOT, value: 9 },
    { type: "add", field: "weights.web", at: 500 },
    { type: "shape", ref: KNOT, shape: "cosine" },
    { type: "remove" },
  );
  expect(draftOf(after)).toBe(BASE);
});

test("knots of two sources move together", () => {
  const both = edit(start(), { type: "toggle", ref: { field: "weights.code", at: 200 } });
  const after = edit(both, { type: "nudge", by: { at: 50, value: 1 } });
  expect(after.selected.map((ref) => ref.at)).toEqual([250, 250]);
  expect(draftOf(after).weights.code?.[1]).toEqual({ at: 250, value: 6, shape: "step" });
});

test("a source without a weight gets one with its first knot", () => {
  const after = edit(start(), { type: "add", field: "weights.math", at: 400, value: 2 });
  expect(valueAt(draftOf(after).weights.math ?? [], 399)).toBe(0);
  expect(valueAt(draftOf(after).weights.math ?? [], 400)).toBe(2);
});

test("renormalising brings the others back to the whole of the revision in force", () => {
  const more = edit(start(), { type: "place", ref: KNOT, value: 4 });
  const after = draftOf(edit(more, { type: "renormalise", source: "web", at: 200 }));
  expect(valueAt(after.weights.web ?? [], 200) + valueAt(after.weights.code ?? [], 200)).toBe(7);
  expect(valueAt(after.weights.code ?? [], 200)).toBe(3);
});

describe("when the first free step moves on", () => {
  test("a knot that it passed cannot be moved any more, and the draft stays", () => {
    const moved = edit(start(), { type: "place", ref: KNOT, value: 3 });
    const later = edit(moved, { type: "limits", limits: { firstFree: 250, lastStep: 1000 } });
    expect(draftOf(later)).toBe(draftOf(moved));
    expect(draftOf(edit(later, { type: "nudge", by: { at: 10, value: 0 } }))).toBe(draftOf(moved));
  });
});
