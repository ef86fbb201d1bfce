import type { DraftSync } from "./sync";

const left = new Map<string, DraftSync>();

const keyOf = (run: string, author: string) => `${author} ${run}`;

/** An editor was left: what it has not written yet is written in the background. */
export function leave(run: string, author: string, sync: DraftSync): void {
  left.set(keyOf(run, author), sync);
  void sync.flush();
}

/** The same editor goes on after all. */
export function stay(run: string, author: string, sync: DraftSync): void {
  if (left.get(keyOf(run, author)) === sync) left.delete(keyOf(run, author));
}

/** Wait until the editor that was left has written what it can; from then on it writes nothing. Another one begins with
 * what the server has after that, or else with what the tab keeps. */
export async function endLeft(run: string, author: string): Promise<void> {
  const sync = left.get(keyOf(run, author));
  if (sync === undefined) return;
  await sync.flush();
  sync.close();
  left.delete(keyOf(run, author));
}
