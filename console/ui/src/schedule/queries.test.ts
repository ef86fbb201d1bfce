import { afterEach, expect, test, vi } from "vitest";
import { toJson } from "../curves/schedule";
import { curve, schedule } from "../curves/testing";
import { saveDraft } from "./queries";

const MINE = schedule();
const OTHER = schedule({ weights: { web: curve([0, 2]) } });

afterEach(() => vi.unstubAllGlobals());

/** A planner that has a draft of version 7 already, or none any more. */
function planner(draft: { base: number; schedule: typeof MINE } | null): void {
  const heads = draft ? [{ author: "ada" }] : [];
  const view = draft && { author: "ada", base: draft.base, version: 7, schedule: toJson(draft.schedule) };
  vi.stubGlobal("fetch", async ({ method, url }: Request) => {
    if (method === "PUT" || method === "DELETE") {
      const problem = { code: "STALE", detail: "changed elsewhere", details: { version: draft ? 7 : 0 } };
      return Response.json(problem, { status: 412 });
    }
    return Response.json(url.endsWith("/drafts") ? heads : view);
  });
}

test.each([
  ["this very draft", { base: 3, schedule: MINE }, { is: "saved", version: 7 }],
  ["one of another base", { base: 4, schedule: MINE }, { is: "elsewhere", version: 7 }],
  ["another one", { base: 3, schedule: OTHER }, { is: "elsewhere", version: 7 }],
  ["none", null, { is: "elsewhere", version: 0 }],
])("a write that meets %s", async (_, found, result) => {
  planner(found);
  expect(await saveDraft("run", "ada", { base: 3, schedule: MINE }, 0)).toEqual(result);
});

test.each([
  ["none, as was wanted", null, { is: "saved", version: 0 }],
  ["one", { base: 3, schedule: MINE }, { is: "elsewhere", version: 7 }],
])("throwing a draft away where there is %s", async (_, found, result) => {
  planner(found);
  expect(await saveDraft("run", "ada", { base: 3, schedule: null }, 5)).toEqual(result);
});
