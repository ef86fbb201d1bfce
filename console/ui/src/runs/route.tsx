import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "../app/roots";

export interface RunsSearch {
  state?: string;
  q?: string;
}

const text = (value: unknown) => (typeof value === "string" && value ? value : undefined);

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: "/runs",
  validateSearch: (search: Record<string, unknown>): RunsSearch => ({ state: text(search.state), q: text(search.q) }),
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
