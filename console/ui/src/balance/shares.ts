/** What a source should have got and what it got, over the steps of a window. */
export interface Share {
  source: string;
  planned: number;
  served: number;
  /** Tokens that it got too many (+) or too few (−) since step 0, after the last step of the window. */
  error: number | null;
}

/** Share of each source over a window: the mean of its planned shares weighted by the tokens of the steps, beside what
 * it was served. Columns are source -> one value a step. */
export function shares(
  sources: readonly string[],
  planned: readonly (readonly (number | null)[])[],
  served: readonly (readonly (number | null)[])[],
  error: readonly (readonly (number | null)[])[],
  tokens: readonly number[],
): Share[] {
  return sources.map((source, s) => {
    const [should, did, total] = totals(planned[s] ?? [], served[s] ?? [], tokens);
    const of = { planned: total ? should / total : 0, served: total ? did / total : 0 };
    return { source, ...of, error: error[s]?.at(-1) ?? null };
  });
}

function totals(
  planned: readonly (number | null)[],
  served: readonly (number | null)[],
  tokens: readonly number[],
): [number, number, number] {
  let [should, did, total] = [0, 0, 0];
  tokens.forEach((count, i) => {
    const [p, s] = [planned[i], served[i]];
    if (p === null || p === undefined || s === null || s === undefined) return;
    should += p * count;
    did += s * count;
    total += count;
  });
  return [should, did, total];
}

/** The greatest difference of served and planned share, which scales the bars of all. */
export const widest = (found: readonly Share[]): number =>
  found.reduce((most, { planned, served }) => Math.max(most, planned, served), 0);
