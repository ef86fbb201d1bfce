import { describe, expect, it } from "vitest";
import { gaps, lines, shifted, spread, zoomed } from "./series";
import { shares, widest } from "./shares";

describe("lines", () => {
  it("have a null where steps are missing", () => {
    expect(lines([1, 2, 5], [[10, 20, 50]])).toEqual([
      [1, 2, 2.5, 5],
      [10, 20, null, 50],
    ]);
  });

  it("break between generations", () => {
    expect(lines([1, 2], [[10, 20]], [0, 1])).toEqual([
      [1, 1.5, 2],
      [10, null, 20],
    ]);
  });

  it("keep what is not known as a gap", () => {
    expect(lines([1, 2, 3], [[1, null, 3]])).toEqual([
      [1, 2, 3],
      [1, null, 3],
    ]);
  });
});

describe("gaps", () => {
  it("are named by their first and last step", () => {
    expect(gaps([1, 2, 5, 6, 8])).toEqual([
      [3, 4],
      [7, 7],
    ]);
    expect(gaps([])).toEqual([]);
  });
});

describe("spread", () => {
  it("is of what is known", () => {
    expect(spread([1, null, 3])).toEqual({ mean: 2, max: 3 });
    expect(spread([null])).toBeNull();
  });
});

describe("windows", () => {
  it("move by their width and stop at step 0", () => {
    expect(shifted(100, 200, 1)).toEqual({ from: 200, to: 300 });
    expect(shifted(50, 150, -1)).toEqual({ from: 0, to: 100 });
  });

  it("widen and narrow around their middle", () => {
    expect(zoomed(100, 200, 2)).toEqual({ from: 50, to: 250 });
    expect(zoomed(100, 200, 0.5)).toEqual({ from: 125, to: 175 });
    expect(zoomed(0, 1, 0.5)).toEqual({ from: 0, to: 3 });
  });
});

describe("shares", () => {
  it("weigh steps by their tokens and leave out what is not known", () => {
    const found = shares(
      ["web", "code"],
      [
        [0.5, 0.5, null],
        [0.5, 0.5, 0.5],
      ],
      [
        [0.6, 0.4, 0.9],
        [0.4, 0.6, 0.1],
      ],
      [[5, -20, -30], [-5]],
      [100, 300, 50],
    );
    expect(found[0]).toEqual({ source: "web", planned: 0.5, served: 0.45, error: -30 });
    expect(found[1]?.error).toBe(-5);
    expect(widest(found)).toBeCloseTo(0.5);
  });
});
