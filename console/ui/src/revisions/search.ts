/** The two revisions that are compared; none: the newest with its base. */
export interface RevisionsSearch {
  left?: number;
  right?: number;
}

export function validateSearch(search: Record<string, unknown>): RevisionsSearch {
  const found: RevisionsSearch = {};
  const [left, right] = [numberOf(search.left), numberOf(search.right)];
  if (left !== undefined) found.left = left;
  if (right !== undefined) found.right = right;
  return found;
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 ? value : undefined;
}

/** Which two are compared: what the address says, else the newest (or right) with the one before it. Null: there is
 * one revision only, and nothing to compare. */
export function pairOf(search: RevisionsSearch, newest: number): { left: number; right: number } | null {
  if (newest === 0) return null;
  const right = Math.min(search.right ?? newest, newest);
  const left = Math.min(search.left ?? Math.max(0, right - 1), newest);
  return { left, right };
}
