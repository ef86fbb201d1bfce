import { describe, expect, it } from "vitest";
import { coordsOf, encodedOnly, microbatches, perRank, worldSize } from "./batch";
import { explainCommand, go } from "./place";
import type { PieceView } from "./query";
import { type Origin, why } from "./why";

const BOUNDS = { first: 0, planned: 10, worldSize: 4, perRank: 2 };

describe("moves", () => {
  it.each([
    ["step-", { step: 4, rank: 1 }],
    ["step+", { step: 6, rank: 1 }],
    ["rank-", { step: 5, rank: 0 }],
    ["rank+", { step: 5, rank: 2 }],
  ] as const)("%s leads on", (move, spot) => {
    expect(go({ step: 5, rank: 1 }, move, BOUNDS)).toMatchObject(spot);
  });

  it("stay at the borders", () => {
    expect(go({ step: 9, rank: 3 }, "step+", BOUNDS).step).toBe(9);
    expect(go({ step: 9, rank: 3 }, "rank+", BOUNDS).rank).toBe(3);
    expect(go({ step: 0, rank: 0 }, "step-", BOUNDS).step).toBe(0);
  });

  it("turn through the microbatches and all of them", () => {
    const turns: (number | undefined)[] = [];
    let spot: { step: number; rank: number; microbatch?: number } = { step: 5, rank: 1 };
    for (let i = 0; i < 4; i++) {
      spot = go(spot, "microbatch+", BOUNDS);
      turns.push(spot.microbatch);
    }
    expect(turns).toEqual([0, 1, undefined, 0]);
    expect(go({ step: 5, rank: 1 }, "microbatch-", BOUNDS).microbatch).toBe(1);
  });
});

describe("command", () => {
  it("says the same in a shell", () => {
    const spot = { step: 1200, rank: 3, microbatch: 0 };
    expect(explainCommand("http://127.0.0.1:8421", "demo", "train", spot)).toBe(
      "loadmaster explain http://127.0.0.1:8421 demo --step 1200 --rank 3 --microbatch 0 --text",
    );
    expect(explainCommand("http://h:1", "demo", "it's", { step: 0, rank: 0 })).toContain(`--stream 'it'\\''s'`);
  });
});

describe("why", () => {
  const piece: Origin = {
    source: "web",
    drawn_at: 5,
    waited: 0,
    credit_before: 1200,
    credit_after: -300,
    verdict: "ok",
    reason: "",
    first_token: 0,
    num_tokens: 100,
    sample_tokens: 100,
  };

  it("names revision, credit and draw", () => {
    expect(why(piece, 5, 3)).toEqual([
      "Revision 3 has web in the mixture.",
      "web was owed 1\u202f200 tokens before the draw, 300 tokens ahead after it.",
      "Drawn for step 5 and placed at once.",
    ]);
  });

  it("names deferral, cut and verdict", () => {
    const told = why(
      {
        ...piece,
        waited: 2,
        drawn_at: 3,
        sample_tokens: 400,
        first_token: 100,
        verdict: "masked",
        reason: "broken jpeg",
      },
      5,
      0,
    );
    expect(told.slice(2)).toEqual([
      "Drawn at step 3 and deferred for 2 steps.",
      "Tokens 100 to 200 of 400: the sample was cut.",
      "Served without loss: broken jpeg.",
    ]);
  });

  it("says what is not known", () => {
    const told = why({ ...piece, drawn_at: -1, credit_before: null }, 5, 0);
    expect(told[1]).toMatch(/not kept/);
    expect(told[2]).toMatch(/not kept/);
  });
});

describe("batch", () => {
  const mesh = { pp: 2, dp: 4, cp: 1, tp: 2 };

  it("finds a rank's place, slowest axis first", () => {
    expect(coordsOf(mesh, 13)).toEqual({ pp: 1, dp: 2, cp: 0, tp: 1 });
    expect(Object.keys(coordsOf(mesh, 0))).toEqual(["pp", "dp", "cp", "tp"]);
    expect([worldSize(mesh), perRank({ mesh, num_bins: 12 })]).toEqual([16, 3]);
  });

  it("has documents by microbatch and slot, without those of other dp ranks", () => {
    const piece = (dp: number, microbatch: number, slot: number) =>
      ({ dp, microbatch, slot, num_tokens: 10, sample: `s${slot}` }) as PieceView;
    const pieces = [piece(1, 1, 0), piece(1, 0, 1), piece(1, 0, 0), piece(2, 0, 0)];
    const found = microbatches(pieces, 1);
    expect(found.map(({ number, tokens }) => [number, tokens])).toEqual([
      [0, 20],
      [1, 10],
    ]);
    expect(found[0]?.pieces.map((one) => one.slot)).toEqual([0, 1]);
    expect(encodedOnly(pieces, 1)).toEqual([pieces[3]]);
  });
});
