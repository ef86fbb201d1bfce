import { beforeEach, expect, test } from "vitest";
import { schedule } from "../curves/testing";
import { keepInTab, keptInTab, seedOf } from "./tabCopy";

const KEPT = { base: 3, schedule: schedule(), version: 2 };

beforeEach(() => sessionStorage.clear());

test("a draft is kept for a run and an author, and forgotten once the server has it", () => {
  keepInTab("demo", "ada", KEPT);
  expect(keptInTab("demo", "ada")).toEqual(KEPT);
  expect(keptInTab("demo", "bob")).toBeNull();
  keepInTab("demo", "ada", null);
  expect(keptInTab("demo", "ada")).toBeNull();
});

test("what cannot be read is no draft", () => {
  sessionStorage.setItem("loadmaster.draft ada demo", "{");
  expect(keptInTab("demo", "ada")).toBeNull();
});

test("the tab's edits go before the server's draft that they were made to", () => {
  const tab = { ...KEPT, schedule: schedule({ retired: ["web"] }) };
  expect(seedOf(KEPT, tab)).toEqual({ draft: tab, version: 2, isUnsaved: true, isElsewhere: false });
  expect(seedOf({ ...KEPT, version: 5 }, tab).isElsewhere).toBe(true);
  expect(seedOf({ ...tab, version: 5 }, tab).isUnsaved).toBe(false);
  expect(seedOf(null, tab)).toEqual({ draft: tab, version: 0, isUnsaved: true, isElsewhere: false });
  expect(seedOf(KEPT, null)).toEqual({ draft: KEPT, version: 2, isUnsaved: false, isElsewhere: false });
});
