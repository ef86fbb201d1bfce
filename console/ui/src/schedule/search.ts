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

export function validateSearch(search: Record<string, unknown>): ScheduleSearch {
  const found: ScheduleSearch = {};
  if (typeof search.sel === "string" && search.sel) found.sel = search.sel;
  else if (typeof search.sel === "number") found.sel = String(search.sel);
  if (search.x === "tokens") found.x = "tokens";
  const [from, to, at] = [stepOf(search.from), stepOf(search.to), stepOf(search.at)];
  if (from !== undefined && to !== undefined && from < to) Object.assign(found, { from, to });
  if (at !== undefined) found.at = at;
  if (typeof search.q === "string" && search.q) found.q = search.q;
  if (search.table === true) found.table = true;
  return found;
}

function stepOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 ? value : undefined;
}
