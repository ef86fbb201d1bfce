import type { PieceView, StepView } from "./query";

/** A microbatch of the rank, and the documents in it in the order in which they lie. */
export interface Microbatch {
  number: number;
  pieces: PieceView[];
  /** Tokens of the documents whose length is known. */
  tokens: number;
}

/** The pieces by microbatch and slot. Those that the rank only encodes images of are not its batch. */
export function microbatches(pieces: readonly PieceView[], dp: number): Microbatch[] {
  const found = new Map<number, PieceView[]>();
  for (const piece of pieces) {
    if (piece.dp !== dp) continue;
    found.set(piece.microbatch, [...(found.get(piece.microbatch) ?? []), piece]);
  }
  return [...found]
    .sort(([a], [b]) => a - b)
    .map(([number, members]) => {
      const inOrder = [...members].sort((a, b) => a.slot - b.slot);
      return {
        number,
        pieces: inOrder,
        tokens: inOrder.reduce((sum, piece) => sum + Math.max(piece.num_tokens, 0), 0),
      };
    });
}

/** Pieces of other dp ranks, of which the rank encodes images. */
export const encodedOnly = (pieces: readonly PieceView[], dp: number): PieceView[] =>
  pieces.filter((piece) => piece.dp !== dp);

/** Coordinates of a rank on the step's mesh, slowest axis first. */
export function coordsOf(mesh: StepView["mesh"], rank: number): Record<string, number> {
  const coords: Record<string, number> = {};
  let rest = rank;
  for (const [axis, size] of Object.entries(mesh).reverse()) {
    coords[axis] = rest % size;
    rest = Math.floor(rest / size);
  }
  return Object.fromEntries(Object.entries(coords).reverse());
}

export const worldSize = (mesh: StepView["mesh"]): number =>
  Object.values(mesh).reduce((product, size) => product * size, 1);

/** Microbatches of a dp rank. */
export const perRank = (view: Pick<StepView, "num_bins" | "mesh">): number => view.num_bins / (view.mesh.dp ?? 1);

/** The shares of the sources in this batch first, by their tokens in it; the others by share. */
export function sharesOf(view: StepView): { here: StepView["shares"]; others: StepView["shares"] } {
  const inBatch = new Set(view.pieces.map((piece) => piece.source));
  const here = view.shares.filter((share) => inBatch.has(share.source));
  const others = view.shares.filter((share) => !inBatch.has(share.source));
  const byWeight = (a: { weight: number }, b: { weight: number }) => b.weight - a.weight;
  return { here: here.sort(byWeight), others: others.sort(byWeight) };
}
