// @vitest-environment node
import { expect, test } from "vitest";
import { begin, push, redo, settle, undo } from "./history";

test("a drag of many moves is undone at once, the next drag apart", () => {
  let history = push(push(begin(0), 1, "drag"), 2, "drag");
  history = push(push(settle(history), 3, "drag"), 4, "drag");
  expect(undo(history).now).toBe(2);
  expect(undo(undo(history)).now).toBe(0);
  expect(redo(undo(history)).now).toBe(4);
});

test("a new edit after an undo forgets what was undone", () => {
  const history = push(undo(push(push(begin("a"), "b"), "c")), "d");
  expect(history.now).toBe("d");
  expect(redo(history)).toBe(history);
  expect(undo(history).now).toBe("b");
});

test("nothing happens where there is nothing to undo, or nothing changed", () => {
  const history = begin("a");
  expect(undo(history)).toBe(history);
  expect(push(history, "a")).toBe(history);
});
