import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "../app/roots";

export interface AuditSearch {
  run?: string;
  author?: string;
  action?: string;
}

const text = (value: unknown) => (typeof value === "string" && value ? value : undefined);

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: "/audit",
  validateSearch: (search: Record<string, unknown>): AuditSearch => ({
    run: text(search.run),
    author: text(search.author),
    action: text(search.action),
  }),
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
