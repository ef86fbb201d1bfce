import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, call, type Model } from "../api/client";
import { type Role, useRefusal, useSession } from "../api/session";

/** One's own browser sessions; everybody's for an admin. */
export function useSessions() {
  const { isKnown } = useSession();
  return useQuery({
    queryKey: ["sessions"],
    queryFn: ({ signal }) => call(api.GET("/api/v1/sessions", { signal })),
    enabled: isKnown,
  });
}

/** All tokens; only an admin may read them. */
export function useTokens() {
  const isRefused = useRefusal("admin") !== "";
  return useQuery({
    queryKey: ["tokens"],
    queryFn: ({ signal }) => call(api.GET("/api/v1/tokens", { signal })),
    enabled: !isRefused,
  });
}

function useChange<Wish, Answer>(key: string, mutationFn: (wish: Wish) => Promise<Answer>) {
  const queries = useQueryClient();
  return useMutation({ mutationFn, onSettled: () => queries.invalidateQueries({ queryKey: [key] }) });
}

export function useEndSession() {
  return useChange("sessions", (session: string) =>
    call(api.DELETE("/api/v1/sessions/{session}", { params: { path: { session } } })),
  );
}

export function useRevokeToken() {
  return useChange("tokens", (token: string) =>
    call(api.DELETE("/api/v1/tokens/{token}", { params: { path: { token } } })),
  );
}

export interface TokenWish {
  name: string;
  role: Role | "process" | "metrics";
  days: number | null;
}

const DAY_S = 86_400;

export function useCreateToken() {
  return useChange("tokens", ({ name, role, days }: TokenWish): Promise<Model<"NewTokenView">> => {
    const body = { name, roles: [role], expires_in_s: days === null ? null : days * DAY_S };
    return call(api.POST("/api/v1/tokens", { body }));
  });
}
