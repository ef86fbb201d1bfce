import { count, searchOf } from "../app/search";

/** The two revisions that are compared; none: the newest with its base. */
export interface RevisionsSearch {
  left?: number;
  right?: number;
}

export const validateSearch = searchOf<RevisionsSearch>({ left: count, right: count });

/** Which two are compared: what the address says, else the newest (or right) with the one before it. Null: there is
 * one revision only, and nothing to compare. */
export function pairOf(search: RevisionsSearch, newest: number): { left: number; right: number } | null {
  if (newest === 0) return null;
  const right = Math.min(search.right ?? newest, newest);
  const left = Math.min(search.left ?? Math.max(0, right - 1), newest);
  return { left, right };
}
