import createClient, { type Middleware } from "openapi-fetch";
import { fetchOrEarly } from "./early";
import { problemOf, unreachable } from "./problem";
import type { components, paths } from "./schema";

/** A model of the planner's API by its name: `Model<"RevisionView">`. */
export type Model<Name extends keyof components["schemas"]> = components["schemas"][Name];

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);
const CSRF_HEADER = "X-Loadmaster-Csrf";
let csrf = "";

/** The token that unsafe calls must carry; it comes with the session. */
export function setCsrf(token: string): void {
  csrf = token;
}

const carryCsrf: Middleware = {
  onRequest({ request }) {
    if (csrf && !SAFE.has(request.method)) request.headers.set(CSRF_HEADER, csrf);
    return request;
  },
};

/** The planner's API, typed. Give its promises to `call` or `callTagged`, which turn refusals into `Problem`s. */
export const api = createClient<paths>({ baseUrl: "/", credentials: "same-origin", fetch: fetchOrEarly });
api.use(carryCsrf);

type Answer<T> = { data?: T; error?: unknown; response: Response };

async function settle<T>(answer: Promise<Answer<T>>): Promise<Answer<T>> {
  let settled: Answer<T>;
  try {
    settled = await answer;
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw unreachable(cause);
  }
  if (!settled.response.ok) throw problemOf(settled.response.status, settled.error);
  return settled;
}

/** The body of an answer; throws a `Problem`. */
export async function call<T>(answer: Promise<Answer<T>>): Promise<T> {
  return (await settle(answer)).data as T;
}

/** The body of an answer and the number in its ETag, which a later If-Match must hold; throws a `Problem`. */
export async function callTagged<T>(answer: Promise<Answer<T>>): Promise<{ data: T; tag: number }> {
  const { data, response } = await settle(answer);
  return { data: data as T, tag: Number(response.headers.get("etag")?.replaceAll('"', "")) };
}

/** An If-Match header's value. */
export const ifMatch = (tag: number): string => `"${tag}"`;
