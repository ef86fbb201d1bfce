/** The last samples of one metric of every rank, for ranks × time: bounded, whatever time passes. */
export class History {
  private readonly ring: Float32Array;
  private readonly stamps: Float64Array;
  private next = 0;
  private count = 0;

  /** @param ranks how many; @param depth samples that are kept. */
  constructor(
    readonly ranks: number,
    readonly depth: number,
  ) {
    this.ring = new Float32Array(ranks * depth).fill(Number.NaN);
    this.stamps = new Float64Array(depth);
  }

  /** Samples so far, at most `depth`. */
  get length(): number {
    return this.count;
  }

  /** Take in one sample of all ranks; one with a time that is there already replaces it. */
  push(at: number, value: Float64Array): void {
    const last = (this.next + this.depth - 1) % this.depth;
    const isSame = this.count > 0 && this.stamps[last] === at;
    const slot = isSame ? last : this.next;
    this.ring.set(value.subarray(0, this.ranks), slot * this.ranks);
    this.stamps[slot] = at;
    if (isSame) return;
    this.next = (slot + 1) % this.depth;
    this.count = Math.min(this.count + 1, this.depth);
  }

  /** Time of a sample, 0 the oldest. */
  time(sample: number): number {
    return this.stamps[this.slot(sample)] as number;
  }

  /** Value of a rank in a sample, 0 the oldest. */
  value(rank: number, sample: number): number {
    return this.ring[this.slot(sample) * this.ranks + rank] as number;
  }

  private slot(sample: number): number {
    return (this.next - this.count + sample + this.depth) % this.depth;
  }
}

/** Which ranks share a line of ranks × time where there are more ranks than lines: neighbours, the worst of them shown. */
export function bands(ranks: number, most: number): { size: number; lines: number } {
  const size = Math.max(1, Math.ceil(ranks / most));
  return { size, lines: Math.ceil(ranks / size) };
}

/** The worst known value of a line's ranks in a sample; NaN where none is known. */
export function worstOf(history: History, line: number, size: number, sample: number): number {
  let worst = Number.NaN;
  for (let rank = line * size; rank < Math.min((line + 1) * size, history.ranks); rank++) {
    const value = history.value(rank, sample);
    if (!(value <= worst)) worst = Number.isNaN(value) ? worst : value;
  }
  return worst;
}
