import { api, call, setCsrf } from "../api/client";
import { asProblem } from "../api/problem";

/** What lets somebody in: the code of a one-time link, or a token. */
export type Proof = { code: string } | { token: string };

/** Trade a proof for this browser's session; throws a `Problem`. */
export async function signIn(proof: Proof): Promise<void> {
  const trade = () => call(api.POST("/api/v1/session", { body: proof }));
  const session = await trade().catch(async (error) => {
    if (asProblem(error).status !== 403) throw error;
    setCsrf((await call(api.GET("/api/v1/session"))).csrf); // signed in already: a change needs the token of that session
    return trade();
  });
  setCsrf(session.csrf);
}

/** End this browser's session; throws a `Problem`. */
export async function signOut(): Promise<void> {
  await call(api.DELETE("/api/v1/session"));
  setCsrf("");
}
