/** What can be undone and done again. A run of edits of one kind (a drag, a held key) is one entry. */
export interface History<T> {
  readonly past: readonly T[];
  readonly now: T;
  readonly future: readonly T[];
  readonly kind: string | null;
}

const DEPTH = 200;

export function begin<T>(now: T): History<T> {
  return { past: [], now, future: [], kind: null };
}

/** Take a new state; with the kind of the last entry it goes on with that one. */
export function push<T>(history: History<T>, now: T, kind: string | null = null): History<T> {
  if (now === history.now) return history;
  const isSame = kind !== null && kind === history.kind;
  const past = isSame ? history.past : [...history.past, history.now].slice(-DEPTH);
  return { past, now, future: [], kind };
}

/** The next edit is a new entry, whatever its kind. */
export function settle<T>(history: History<T>): History<T> {
  return history.kind === null ? history : { ...history, kind: null };
}

export function undo<T>(history: History<T>): History<T> {
  const before = history.past.at(-1);
  if (before === undefined) return history;
  return {
    past: history.past.slice(0, -1),
    now: before,
    future: [history.now, ...history.future],
    kind: null,
  };
}

export function redo<T>(history: History<T>): History<T> {
  const [next, ...future] = history.future;
  if (next === undefined) return history;
  return { past: [...history.past, history.now], now: next, future, kind: null };
}
