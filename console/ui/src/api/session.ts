import { useQuery } from "@tanstack/react-query";
import { api, call, type Model, setCsrf } from "./client";
import { asProblem } from "./problem";

/** What one may do, each role what those before it may too. */
export const ROLES = ["viewer", "editor", "publisher", "admin"] as const;
export type Role = (typeof ROLES)[number];

/** Who uses this tab. `isKnown`: they have said who they are; where access is off nobody need to. */
export interface Session {
  name: string;
  role: Role;
  can: string[];
  access: string;
  isKnown: boolean;
}

export const SESSION_KEY = ["session"];
const NOBODY: Session = { name: "", role: "viewer", can: [], access: "", isKnown: false };

/** A session as the planner tells it. */
export function sessionOf(view: Model<"SessionView">): Session {
  const role = ROLES.find((each) => each === view.role) ?? "viewer";
  return { name: view.name, role, can: view.can, access: view.access, isKnown: view.csrf !== "" };
}

async function readSession(): Promise<Session> {
  try {
    const view = await call(api.GET("/api/v1/session"));
    setCsrf(view.csrf);
    return sessionOf(view);
  } catch (error) {
    const { status, details } = asProblem(error);
    if (status !== 401) throw error;
    setCsrf("");
    return { ...NOBODY, access: String(details.access ?? ""), can: Array.isArray(details.can) ? details.can : [] };
  }
}

/** The session of this tab; nobody until it is known. */
export function useSession(): Session {
  const { data } = useQuery({ queryKey: SESSION_KEY, queryFn: readSession, staleTime: 60_000 });
  return data ?? NOBODY;
}

/** Why somebody may not do what needs `role`; empty when they may. Controls stay visible and show it. */
export function refusal(session: Session, role: Role): string {
  if (ROLES.indexOf(session.role) >= ROLES.indexOf(role)) return "";
  if (!session.isKnown) return `Sign in as ${role} to do this`;
  return `Needs the role ${role}; you are ${session.role}`;
}

/** `refusal` of the tab's session. */
export function useRefusal(role: Role): string {
  return refusal(useSession(), role);
}
