import { describe, expect, it } from "vitest";
import { columnsOf } from "./layers";
import { layout, NODE_HEIGHT, NODE_WIDTH, StableLayout } from "./layout";
import { around, kinds, type Stage, split, statusOf, widths, worstFirst } from "./model";

const stage = (id: string, fields: Partial<Stage> = {}): Stage => ({
  id,
  kind: "loader",
  label: id,
  group: null,
  members: 1,
  queue_fill: null,
  busy: null,
  blocked: null,
  idle: null,
  rate: null,
  errors: 0,
  state: "ok",
  detail: "",
  ...fields,
});

const FLOWS = [
  { from: "a", to: "b", rate: 100 },
  { from: "b", to: "c", rate: 25 },
  { from: "a", to: "c", rate: null },
];

describe("status", () => {
  it.each([
    [{ errors: 2, busy: 1 }, "failing"],
    [{ state: "silent", errors: 2 }, "silent"],
    [{ busy: 0.9, blocked: 0.4 }, "blocked"],
    [{ busy: 0.9, blocked: 0.1 }, "busy"],
    [{ busy: 0.2, rate: 4 }, "flowing"],
    [{ busy: 0, rate: 0 }, "idle"],
    [{}, "unknown"],
  ])("of %j is %s", (fields, status) => {
    expect(statusOf(stage("a", fields))).toBe(status);
  });

  it("puts what hurts first", () => {
    const found = worstFirst([
      stage("idle", { busy: 0, rate: 0 }),
      stage("busy", { busy: 0.95 }),
      stage("failing", { errors: 1 }),
      stage("held", { blocked: 0.6 }),
      stage("held more", { blocked: 0.7 }),
    ]);
    expect(found.map((one) => one.id)).toEqual(["failing", "held more", "held", "busy", "idle"]);
  });
});

describe("split", () => {
  it("adds up to one", () => {
    expect(split(stage("a", { busy: 0.5, blocked: 0.25 }))).toEqual({ busy: 0.5, blocked: 0.25, idle: 0.25 });
    expect(split(stage("a", { busy: 1, blocked: 1 }))).toEqual({ busy: 0.5, blocked: 0.5, idle: 0 });
  });

  it("is nothing where nothing is known", () => {
    expect(split(stage("a"))).toBeNull();
  });
});

describe("flows", () => {
  it("are as wide as the root of their rate", () => {
    expect(widths(FLOWS)).toEqual([8, 4.5, 1]);
    expect(widths([])).toEqual([]);
  });

  it("name the neighbours of a stage", () => {
    expect([...around("b", FLOWS)].sort()).toEqual(["a", "b", "c"]);
    expect([...around("z", FLOWS)]).toEqual(["z"]);
  });
});

describe("kinds", () => {
  it("come along the flow, the worst of each first", () => {
    const found = kinds([
      stage("l1"),
      stage("l2", { errors: 1 }),
      stage("x", { kind: "cache" }),
      stage("s", { kind: "source-group" }),
    ]);
    expect(found.map((one) => one.label)).toEqual(["Sources", "Loaders", "cache"]);
    expect(found[1]?.stages.map((one) => one.id)).toEqual(["l2", "l1"]);
  });
});

describe("layout", () => {
  const stages = ["a", "b", "c"].map((id) => stage(id));

  it("goes from left to right and overlaps nowhere", () => {
    const places = [...layout(stages, FLOWS).values()];
    expect(places[0]?.x).toBeLessThan(places[1]?.x as number);
    places.forEach((a, i) => {
      for (const b of places.slice(i + 1)) {
        expect(Math.abs(a.x - b.x) >= NODE_WIDTH || Math.abs(a.y - b.y) >= NODE_HEIGHT).toBe(true);
      }
    });
  });

  it("stays where it is when only numbers change", () => {
    const stable = new StableLayout();
    const before = stable.of(stages, FLOWS);
    expect(
      stable.of(
        stages.map((one) => ({ ...one, rate: 7 })),
        FLOWS,
      ),
    ).toBe(before);
    expect(stable.of([...stages, stage("d")], FLOWS)).not.toBe(before);
  });

  it("breaks a tall column, so that the picture is not a thin one", () => {
    const many = Array.from({ length: 20 }, (_, i) => stage(`r${i}`));
    const places = [
      ...layout(
        [stage("a"), ...many],
        many.map((one) => ({ from: "a", to: one.id, rate: 1 })),
      ).values(),
    ];
    expect(new Set(places.map(({ x }) => x)).size).toBe(4);
    expect(new Set(places.map(({ x, y }) => `${x}/${y}`)).size).toBe(21);
    const heights = places.map(({ y }) => y);
    expect(Math.max(...heights) - Math.min(...heights)).toBeLessThan(7 * NODE_WIDTH);
  });

  it("passes over a flow to a stage that is not there", () => {
    expect(layout(stages, [{ from: "a", to: "gone", rate: 1 }]).has("gone")).toBe(false);
  });
});

describe("columns", () => {
  const flows = (...pairs: string[]) => pairs.map((pair) => ({ from: pair[0] ?? "", to: pair[1] ?? "", rate: null }));
  const of = (ids: string, ...pairs: string[]) => columnsOf([...ids], flows(...pairs)).map((column) => column.join(""));

  it.each([
    ["the longest way counts", "abc", ["ab", "bc", "ac"], ["a", "b", "c"]],
    ["whoever begins a flow stands before its first end", "pabc", ["ab", "bc", "pc"], ["a", "pb", "c"]],
    ["a way that is joined elsewhere does not cross", "abxy", ["ay", "bx"], ["ab", "yx"]],
    ["a circle ends", "abc", ["ab", "bc", "cb"], ["a", "b", "c"]],
    ["a circle without a beginning ends too", "ab", ["ab", "ba"], ["a", "b"]],
    ["who has no flow stands first", "ab", [], ["ab"]],
  ])("%s", (_, ids, pairs, found) => {
    expect(of(ids, ...pairs)).toEqual(found);
  });
});
