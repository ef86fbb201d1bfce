/** What `src/early.ts` has asked for before the bundle was there. */
export interface Early {
  /** When, by the page's clock. */
  at: number;
  /** By address; each is taken once. */
  answers: Map<string, Promise<Response>>;
}

declare global {
  interface Window {
    loadmasterEarly?: Early;
  }
}

const FRESH_MS = 10_000;

/** `fetch`, but the first question for what was asked early gets that answer. A change makes all of them old. */
export async function fetchOrEarly(request: Request): Promise<Response> {
  const known = window.loadmasterEarly;
  if (!known || known.answers.size === 0) return fetch(request);
  if (request.method !== "GET" || performance.now() - known.at > FRESH_MS) {
    known.answers.clear();
    return fetch(request);
  }
  const answer = known.answers.get(request.url);
  known.answers.delete(request.url);
  return (await answer?.catch(() => undefined)) ?? fetch(request);
}
