import { count, oneOf, searchOf, text } from "../app/search";

/** What the address of the editor holds: the view, never the draft. */
export interface ScheduleSearch {
  /** The field that is edited: a source's name, `microbatches` or `seq_len`. */
  sel?: string;
  /** What the x axis counts; none: steps. */
  x?: "tokens";
  from?: number;
  to?: number;
  /** The step that shares are told for; none: the first that can be changed. */
  at?: number;
  /** Sources whose name holds this. */
  q?: string;
  /** The mixture as a table. */
  table?: true;
}

const read = searchOf<ScheduleSearch>({
  sel: text,
  x: oneOf(["tokens"] as const),
  from: count,
  to: count,
  at: count,
  q: text,
  table: oneOf([true] as const),
});

/** A range of steps counts as a whole, or not at all. */
export function validateSearch(search: Record<string, unknown>): ScheduleSearch {
  const { from, to, ...found } = read(search);
  return from !== undefined && to !== undefined && from < to ? { ...found, from, to } : found;
}
