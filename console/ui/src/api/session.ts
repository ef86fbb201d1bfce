import { useQuery } from "@tanstack/react-query";
import { setCsrf } from "./client";
import { problemOf, unreachable } from "./problem";

/** What one may do, each role what those before it may too. */
export const ROLES = ["viewer", "editor", "publisher", "admin"] as const;
export type Role = (typeof ROLES)[number];

/** Who uses this tab. `name` is empty for somebody who did not sign in. */
export interface Session {
  name: string;
  role: Role;
  can: string[];
}

export const SESSION_KEY = ["session"];
const NOBODY: Session = { name: "", role: "viewer", can: [] };

async function readSession(): Promise<Session> {
  let answer: Response;
  try {
    answer = await fetch("/api/v1/session", { credentials: "same-origin" });
  } catch (cause) {
    throw unreachable(cause);
  }
  const body: unknown = await answer.json().catch(() => null);
  if (answer.status === 401 || answer.status === 404) return NOBODY;
  if (!answer.ok) throw problemOf(answer.status, body);
  const told = body as { name: string; role: Role; csrf?: string; can?: string[] };
  setCsrf(told.csrf ?? "");
  return { name: told.name, role: told.role, can: told.can ?? [] };
}

/** The session of this tab; nobody until it is known. */
export function useSession(): Session {
  const { data } = useQuery({ queryKey: SESSION_KEY, queryFn: readSession, staleTime: 60_000 });
  return data ?? NOBODY;
}

/** Why somebody may not do what needs `role`; empty when they may. Controls stay visible and show it. */
export function refusal(session: Session, role: Role): string {
  if (ROLES.indexOf(session.role) >= ROLES.indexOf(role)) return "";
  if (!session.name) return `Sign in as ${role} to do this`;
  return `Needs the role ${role}; you are ${session.role}`;
}

/** `refusal` of the tab's session. */
export function useRefusal(role: Role): string {
  return refusal(useSession(), role);
}
