import { type Schedule, sharesAt, sourceOf, weightField } from "../curves/schedule";
import { byName } from "../ui/order";

/** A row of the list of sources. Shares are those at the step that is looked at. */
export interface SourceRow {
  readonly source: string;
  readonly share: number;
  /** Share with the revision in force; the same where nothing changed. */
  readonly before: number;
  readonly isChanged: boolean;
  readonly isRetired: boolean;
  readonly hasWeight: boolean;
}

/** All sources of the run, by their share in the revision in force, then by name: an edit moves no row; those whose name holds `query`. */
export function sourceRows(
  sources: readonly string[],
  base: Schedule,
  draft: Schedule,
  changed: ReadonlySet<string>,
  step: number,
  query: string,
): SourceRow[] {
  const [before, now] = [sharesAt(base, step), sharesAt(draft, step)];
  const wanted = query.trim().toLowerCase();
  return sources
    .filter((source) => source.toLowerCase().includes(wanted))
    .map((source) => ({
      source,
      share: now.get(source) ?? 0,
      before: before.get(source) ?? 0,
      isChanged: changed.has(weightField(source)),
      isRetired: draft.retired.includes(source),
      hasWeight: Object.hasOwn(draft.weights, source),
    }))
    .sort((a, b) => b.before - a.before || byName(a.source, b.source));
}

/** The part of a long list that is in view, with some beyond it on both sides. */
export function windowOf(count: number, rowHeight: number, scrollTop: number, height: number): [number, number] {
  const beyond = 8;
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - beyond);
  return [first, Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + beyond)];
}

/** The field that the address selects: a source of the run, G, C; else the source with the largest share. */
export function fieldOf(sel: string | undefined, sources: readonly string[], largest: string | undefined): string {
  if (sel === "microbatches" || sel === "seq_len") return sel;
  if (sel !== undefined && sources.includes(sel)) return weightField(sel);
  return weightField(largest ?? sources[0] ?? "");
}

/** What the address says for a field. */
export function selOf(field: string): string {
  return sourceOf(field) ?? field;
}
