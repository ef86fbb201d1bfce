import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { runRoute } from "../app/roots";

export interface GraphSearch {
  /** The stage that is looked at. */
  sel?: string;
  /** The group that is shown in parts. */
  expand?: string;
}

const word = (value: unknown): string | undefined => (typeof value === "string" && value ? value : undefined);

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "graph",
  validateSearch: (search: Record<string, unknown>): GraphSearch => {
    const [sel, expand] = [word(search.sel), word(search.expand)];
    return { ...(sel && { sel }), ...(expand && { expand }) };
  },
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
