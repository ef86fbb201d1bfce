import { afterEach, describe, expect, it, vi } from "vitest";
import { fetchOrEarly } from "./api/early";
import { firstAsked, screenOf } from "./early";

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  delete window.loadmasterEarly;
});

describe("what a screen asks first", () => {
  const shared = ["/api/v1/session", "/api/v1/runs"];

  it.each([
    ["/sign-in", "?code=x", []],
    ["/runs", "?q=web", shared],
    ["/audit", "", shared],
    ["/runs/a%20b", "", [...shared, "/api/v1/runs/a%20b/overview?stream=train"]],
    [
      "/runs/r/graph",
      "?stream=eval&expand=sources%3Aweb",
      [...shared, "/api/v1/runs/r/graph?stream=eval&expand=sources%3Aweb"],
    ],
    ["/runs/r/sources", "?q=web", [...shared, "/api/v1/runs/r/sources/health?stream=train&limit=60&q=web"]],
    [
      "/runs/r/steps/7",
      "?rank=3",
      [...shared, "/api/v1/runs/r/steps/7?stream=train&rank=3&text=true&images=true", "/api/v1/runs/r/streams/train"],
    ],
    ["/runs/r/steps", "", [...shared, "/api/v1/runs/r/streams/train"]],
    ["/runs/r/nothing", "", shared],
  ])("%s%s", (path, search, asked) => {
    expect(firstAsked(path, search)).toEqual(asked);
  });

  it.each([
    ["/runs", "runs"],
    ["/runs/r", "overview"],
    ["/runs/r/graph", "graph"],
    ["/runs/r/steps", "steps/Newest"],
    ["/runs/r/steps/7", "steps"],
    ["/audit", "audit"],
  ])("%s needs the code of %s", (path, screen) => {
    expect(screenOf(path)).toBe(screen);
  });
});

describe("an answer that was asked for early", () => {
  const url = "http://localhost/api/v1/runs";
  const rig = (answer: Promise<Response>, at = performance.now()) => {
    const again = vi.fn(async () => new Response("again"));
    vi.stubGlobal("fetch", again);
    window.loadmasterEarly = { at, answers: new Map([[url, answer]]) };
    return again;
  };
  const ask = async (init?: RequestInit) => (await fetchOrEarly(new Request(url, init))).text();

  it("is taken once", async () => {
    const again = rig(Promise.resolve(new Response("early")));
    expect([await ask(), await ask()]).toEqual(["early", "again"]);
    expect(again).toHaveBeenCalledTimes(1);
  });

  it("is asked for again where it did not come", async () => {
    rig(Promise.reject(new Error("cut off")));
    expect(await ask()).toBe("again");
  });

  it("is too old after a change, and after a while", async () => {
    rig(Promise.resolve(new Response("early")));
    await ask({ method: "POST" });
    expect(await ask()).toBe("again");
    rig(Promise.resolve(new Response("early")), performance.now() - 60_000);
    expect(await ask()).toBe("again");
  });
});
