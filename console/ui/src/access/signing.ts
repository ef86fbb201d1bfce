import { csrfHeaders, setCsrf } from "../api/client";
import { problemOf, unreachable } from "../api/problem";

const SESSION = "/api/v1/session";

async function send(init: RequestInit): Promise<void> {
  let answer: Response;
  try {
    answer = await fetch(SESSION, { credentials: "same-origin", ...init });
  } catch (cause) {
    throw unreachable(cause);
  }
  const body: unknown = await answer.json().catch(() => null);
  if (!answer.ok) throw problemOf(answer.status, body);
  if (body && typeof body === "object" && "csrf" in body) setCsrf(String(body.csrf));
}

/** Trade a one-time code or a token for this browser's session. */
export function signIn(proof: { code: string } | { token: string }): Promise<void> {
  return send({
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(proof),
  });
}

/** End this browser's session. */
export function signOut(): Promise<void> {
  return send({ method: "DELETE", headers: csrfHeaders() });
}
