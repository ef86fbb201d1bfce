// @vitest-environment node
import { expect, test } from "vitest";
import { withCurve } from "../curves/schedule";
import { curve, schedule } from "../curves/testing";
import { fieldOf, selOf, sourceRows, windowOf } from "./rows";

const BASE = schedule();

test("rows stand by the revision in force, so that an edit moves none", () => {
  const draft = withCurve(BASE, "weights.web", curve([0, 5]));
  const rows = sourceRows(["web", "code", "math"], BASE, draft, new Set(["weights.web"]), 10, "");
  expect(rows.map((row) => row.source)).toEqual(["code", "web", "math"]);
  expect(rows.map((row) => row.isChanged)).toEqual([false, true, false]);
  expect(rows[2]?.hasWeight).toBe(false);
  expect(rows[1]?.share).toBeGreaterThan(rows[1]?.before as number);
});

test("a search finds a part of the name, in any case", () => {
  expect(sourceRows(["web", "code"], BASE, BASE, new Set(), 0, " WE").map((row) => row.source)).toEqual(["web"]);
});

test("of 306 rows only those in view are drawn", () => {
  const [first, last] = windowOf(306, 32, 3200, 480);
  expect(first).toBe(92);
  expect(last).toBe(123);
  expect(windowOf(3, 32, 0, 480)).toEqual([0, 3]);
});

test("the address selects a source by its name, G or C", () => {
  expect(fieldOf("web", ["web"], "code")).toBe("weights.web");
  expect(fieldOf("seq_len", ["web"], "web")).toBe("seq_len");
  expect(fieldOf("gone", ["web", "code"], "code")).toBe("weights.code");
  expect(selOf("weights.web")).toBe("web");
});
