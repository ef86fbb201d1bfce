import { sameSchedule } from "../curves/schedule";
import type { Kept } from "./sync";

const keyOf = (run: string, author: string) => `loadmaster.draft ${author} ${run}`;

/** Keep what the server does not have yet in this tab; it outlives a reload. Null: nothing any more. */
export function keepInTab(run: string, author: string, draft: Kept | null): void {
  if (draft === null) sessionStorage.removeItem(keyOf(run, author));
  else sessionStorage.setItem(keyOf(run, author), JSON.stringify(draft));
}

/** What this tab kept; null: nothing, or nothing that can be read. */
export function keptInTab(run: string, author: string): Kept | null {
  const text = sessionStorage.getItem(keyOf(run, author));
  if (text === null) return null;
  try {
    const kept = JSON.parse(text) as Kept;
    return typeof kept.base === "number" && kept.schedule?.weights ? kept : null;
  } catch {
    return null;
  }
}

/** What an editor begins with: the tab's draft where it follows the server's, else the server's. */
export interface Seed {
  readonly draft: Kept | null;
  /** Version on the server; 0: none. */
  readonly version: number;
  /** The tab has edits that the server does not have. */
  readonly isUnsaved: boolean;
  /** The server's draft is not the one that the tab's edits were made to: a person decides. */
  readonly isElsewhere: boolean;
}

export function seedOf(server: Kept | null, tab: Kept | null): Seed {
  const version = server?.version ?? 0;
  if (tab === null || (server !== null && isSame(server, tab)))
    return { draft: server, version, isUnsaved: false, isElsewhere: false };
  return { draft: tab, version, isUnsaved: true, isElsewhere: version > 0 && tab.version !== version };
}

function isSame(a: Kept, b: Kept): boolean {
  return a.base === b.base && sameSchedule(a.schedule, b.schedule);
}
