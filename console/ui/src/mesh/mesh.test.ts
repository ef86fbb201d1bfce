import { describe, expect, it } from "vitest";
import { domain, palette, place, shade } from "./color";
import { changed, known, type Ranks, summarize, taken, values, worstFirst } from "./columns";
import { hostGrid, meshGrid, moved } from "./grid";
import { bands, History, worstOf } from "./history";
import { placeTree } from "./tree";

const AXES = [
  { name: "pp", size: 4 },
  { name: "dp", size: 512 },
  { name: "cp", size: 1 },
  { name: "tp", size: 2 },
];

/** Ranks of a mesh whose wait is their number, all on hosts of eight. */
function ranksOf(axes = AXES): Ranks {
  const size = axes.reduce((product, axis) => product * axis.size, 1);
  const rank = Array.from({ length: size }, (_, i) => i);
  const coords: Record<string, number[]> = {};
  let stride = size;
  for (const axis of axes) {
    stride /= axis.size;
    const by = stride;
    coords[axis.name] = rank.map((i) => Math.floor(i / by) % axis.size);
  }
  return taken({
    rank,
    host: rank.map((i) => `host-${Math.floor(i / 8)}`),
    constructor: rank.map(() => null),
    coords,
    acknowledged: rank.map((i) => (i === 3 ? 7 : 9)),
    seen_s: rank.map(() => 0.1),
    moved_s: rank.map(() => 0.5),
    wait_s: rank.map((i) => (i === 5 ? null : i)),
    last_wait_s: rank.map(() => null),
    cost: rank.map(() => null),
    tokens: rank.map(() => null),
    state: rank.map((i) => (i === 6 ? "unheard" : i === 7 ? "silent" : "ok")),
  });
}

describe("columns", () => {
  it("gives NaN, not 0, to a rank that is not known or was not heard of", () => {
    const wait = values(ranksOf(), "wait_s");
    expect(wait[4]).toBe(4);
    expect(wait[5]).toBeNaN();
    expect(wait[6]).toBeNaN();
  });

  it("counts how far a rank is behind the furthest", () => {
    expect([...values(ranksOf(), "behind")].slice(2, 5)).toEqual([0, 2, 0]);
  });

  it("takes changes in and leaves the other ranks as they were", () => {
    const before = ranksOf();
    const after = changed(before, { rank: [4], behind: [3], state: ["behind"], wait_s: [null] });
    expect([after.behind[4], after.state[4], after.wait_s[4]]).toEqual([3, "behind", null]);
    expect([after.wait_s[8], after.state[7], before.wait_s[4]]).toEqual([8, "silent", 4]);
    expect(after.cost).toBe(before.cost);
  });

  it("leaves out metrics that no rank has", () => {
    expect(known(ranksOf()).map((metric) => metric.key)).toEqual(["wait_s", "behind", "moved_s", "seen_s"]);
  });

  it("takes the skew of known values alone", () => {
    const summary = summarize(Float64Array.from([1, 1, Number.NaN, 4]));
    expect(summary).toEqual({ mean: 2, max: 4, min: 1, known: 3, unknown: 1, skew: 2 });
    expect(summarize(new Float64Array(2)).skew).toBeNaN();
  });

  it("lists the worst first and what is not known last", () => {
    const value = Float64Array.from([2, Number.NaN, 9, 2]);
    expect([...worstFirst(value)]).toEqual([2, 0, 3, 1]);
  });
});

describe("grid", () => {
  it("puts each of 4,096 ranks in a place of its own, dp across and folded", () => {
    const grid = meshGrid(AXES, ranksOf());
    expect([grid.columns, grid.rows]).toEqual([128, 32]);
    expect(new Set(grid.cell).size).toBe(4096);
    const rank = 1 * 1024 + 130 * 2 + 1; // pp 1, dp 130, tp 1
    expect(grid.cell[rank]).toBe((3 * 4 + 1) * 128 + 2);
    expect(grid.at[grid.cell[rank] as number]).toBe(rank);
    expect(grid.rowName(13)).toBe("pp 1, tp 1, dp 128+");
  });

  it("names lines without a fold by their axes alone", () => {
    const axes = [
      { name: "pp", size: 2 },
      { name: "dp", size: 4 },
    ];
    const grid = meshGrid(axes, ranksOf(axes));
    expect([grid.columns, grid.rows, grid.rowName(1), grid.columnName(3)]).toEqual([4, 2, "pp 1", "3"]);
  });

  it("puts the ranks of a host on one line", () => {
    const grid = hostGrid(ranksOf([{ name: "dp", size: 32 }]));
    expect([grid.columns, grid.rows, grid.rowName(3), grid.cell[27]]).toEqual([8, 4, "host-3", 27]);
  });

  it("puts many hosts side by side", () => {
    const grid = hostGrid(ranksOf());
    expect([grid.columns, grid.rows, grid.rowName(3)]).toEqual([128, 32, "host-48+"]);
    expect(new Set(grid.cell).size).toBe(4096);
    expect(grid.cell[27]).toBe(27);
  });

  it("moves by keys and stays at the border", () => {
    const grid = meshGrid(AXES, ranksOf());
    expect(moved(grid, 0, "ArrowLeft")).toBe(0);
    expect(moved(grid, 0, "ArrowDown")).toBe(128);
    expect(moved(grid, 130, "End")).toBe(255);
    expect(moved(grid, 130, "Home")).toBe(128);
    expect(moved(grid, 31 * 128 + 5, "PageDown")).toBe(31 * 128 + 5);
    expect(moved(grid, 5, "x")).toBe(5);
  });
});

describe("colours", () => {
  const luminance = (packed: number) =>
    [0, 8, 16].reduce((sum, shift, c) => sum + ([0.2126, 0.7152, 0.0722][c] as number) * ((packed >> shift) & 255), 0);

  it.each([
    ["light", false, -1],
    ["dark", true, 1],
  ])("goes one way in lightness in the %s theme", (_, isDark, sign) => {
    const light = [...palette(isDark)].map(luminance);
    for (let i = 1; i < light.length; i++) {
      expect(((light[i] as number) - (light[i - 1] as number)) * sign).toBeGreaterThan(-1.5);
    }
  });

  it("widens a narrow domain, so that noise does not look like skew", () => {
    const narrow = domain([100, 100.1]);
    expect(narrow.high - narrow.low).toBeGreaterThan(2);
    expect(domain([1, 9, Number.NaN])).toEqual({ low: 1, high: 9 });
    expect(domain([Number.NaN])).toEqual({ low: 0, high: 1 });
  });

  it("maps values to rows of the palette", () => {
    expect(shade(9, { low: 1, high: 9 })).toBe(255);
    expect(shade(-3, { low: 1, high: 9 })).toBe(0);
    expect(place(Number.NaN, { low: 1, high: 9 })).toBeNaN();
  });
});

describe("history", () => {
  it("keeps the last samples alone, oldest first", () => {
    const history = new History(2, 3);
    for (let at = 0; at < 5; at++) history.push(at, Float64Array.from([at, at * 10]));
    expect(history.length).toBe(3);
    expect([0, 1, 2].map((i) => history.time(i))).toEqual([2, 3, 4]);
    expect([0, 1, 2].map((i) => history.value(1, i))).toEqual([20, 30, 40]);
  });

  it("replaces a sample of the same time", () => {
    const history = new History(1, 3);
    history.push(1, Float64Array.from([1]));
    history.push(1, Float64Array.from([2]));
    expect([history.length, history.value(0, 0)]).toEqual([1, 2]);
  });

  it("shows the worst of neighbours where there are more ranks than lines", () => {
    expect(bands(4096, 512)).toEqual({ size: 8, lines: 512 });
    expect(bands(7, 512)).toEqual({ size: 1, lines: 7 });
    const history = new History(4, 2);
    history.push(0, Float64Array.from([Number.NaN, 3, 1, Number.NaN]));
    expect([worstOf(history, 0, 2, 0), worstOf(history, 1, 2, 0)]).toEqual([3, 1]);
  });
});

describe("place tree", () => {
  it("has hosts with silent ranks first, then the worst, and ranks within", () => {
    const ranks = ranksOf([{ name: "dp", size: 24 }]);
    const tree = placeTree(ranks, values(ranks, "wait_s"));
    expect(tree.children.map((host) => host.label)).toEqual(["host-0", "host-2", "host-1"]);
    expect(tree.children[1]?.children[0]?.label).toBe("rank 23");
    expect([tree.silent, tree.worst]).toEqual([2, 23]);
  });
});
