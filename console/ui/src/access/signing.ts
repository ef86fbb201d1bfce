import { api, call, setCsrf } from "../api/client";

/** What lets somebody in: the code of a one-time link, or a token. */
export type Proof = { code: string } | { token: string };

/** Trade a proof for this browser's session; throws a `Problem`. */
export async function signIn(proof: Proof): Promise<void> {
  const session = await call(api.POST("/api/v1/session", { body: proof }));
  setCsrf(session.csrf);
}

/** End this browser's session; throws a `Problem`. */
export async function signOut(): Promise<void> {
  await call(api.DELETE("/api/v1/session"));
  setCsrf("");
}
