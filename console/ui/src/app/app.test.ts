import { describe, expect, it } from "vitest";
import { csvField, toCsv } from "../audit/csv";
import { filterRuns } from "../runs/Screen";
import { find, type PaletteItem } from "./Palette";
import { count, oneOf, searchOf, text } from "./search";
import { isTyping, match } from "./useShortcuts";

const item = (name: string, hint = ""): PaletteItem => ({ id: name, name, hint, icon: "runs", run: () => undefined });

describe("find", () => {
  const items = [
    item("Theme: change to dark"),
    item("Mesh", "g m"),
    item("the-mesh-run", "run, open"),
    item("Graph", "g d"),
  ];

  it("wants all words, anywhere, and puts what begins with them first", () => {
    expect(find(items, "mesh").map((each) => each.name)).toEqual(["Mesh", "the-mesh-run"]);
    expect(find(items, "open mesh").map((each) => each.name)).toEqual(["the-mesh-run"]);
    expect(find(items, "nothing")).toEqual([]);
  });

  it("shows everything before one types", () => expect(find(items, " ")).toHaveLength(4));
});

describe("shortcuts", () => {
  const keys = ["g m", "g d", "?", "."].map((each) => ({ keys: each, what: each, run: () => undefined }));

  it("take two keys in order, and one alone", () => {
    expect(match(keys, "g", "m")?.keys).toBe("g m");
    expect(match(keys, "", "?")?.keys).toBe("?");
    expect(match(keys, "g", "?")).toBeUndefined();
    expect(match(keys, "", "m")).toBeUndefined();
  });

  it("are never taken from somebody who types", () => {
    for (const tag of ["input", "textarea", "select"]) expect(isTyping(document.createElement(tag))).toBe(true);
    expect(isTyping(document.createElement("button"))).toBe(false);
    expect(isTyping(null)).toBe(false);
  });
});

describe("filterRuns", () => {
  const run = (name: string, state: string) => ({ run: name, state, reason: "", revision: 0, streams: ["train"] });
  const runs = [run("tides-8b", "running"), run("tides-70b", "paused"), run("demo", "running")];

  it("by state and by all words of the name", () => {
    expect(filterRuns(runs, "running", "TIDES").map((each) => each.run)).toEqual(["tides-8b"]);
    expect(filterRuns(runs, undefined, "b tides")).toHaveLength(2);
    expect(filterRuns(runs)).toHaveLength(3);
  });
});

describe("CSV", () => {
  it("quotes what needs it", () => {
    expect(csvField('a "b", c\n')).toBe('"a ""b"", c\n"');
    expect(csvField({ a: 1 })).toBe('"{""a"":1}"');
    expect(csvField(null)).toBe("");
  });

  it("lets no spreadsheet take a name for a formula", () => {
    expect(csvField("=cmd()")).toBe("'=cmd()");
    expect(csvField("@ada")).toBe("'@ada");
    expect(csvField(-3)).toBe("-3");
  });

  it("has one line a change, times as UTC", () => {
    const line = {
      number: 4,
      at: 0,
      author: "ada",
      action: "publish",
      run: "demo",
      revision: 2,
      message: "more",
      details: {},
    };
    expect(toCsv([line])).toBe(
      "number,at,author,action,run,revision,message,details\r\n4,1970-01-01T00:00:00.000Z,ada,publish,demo,2,more,{}\r\n",
    );
  });
});

describe("searchOf", () => {
  const read = searchOf<{ step?: number; source?: string; by?: "host" | "time" }>({
    step: count,
    source: text,
    by: oneOf(["host", "time"] as const),
  });

  it("keeps what is of its kind", () =>
    expect(read({ step: 0, source: "web", by: "time" })).toEqual({ step: 0, source: "web", by: "time" }));

  it("leaves out the rest", () => expect(read({ step: -1, source: "", by: "mesh", more: 1 })).toEqual({}));

  it("takes a source whose name is a number", () => expect(read({ step: 1.5, source: 7 })).toEqual({ source: "7" }));
});
