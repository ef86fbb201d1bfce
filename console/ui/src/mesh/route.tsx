import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { runRoute } from "../app/roots";
import { METRICS, type MetricKey } from "./columns";

export interface MeshSearch {
  /** How ranks are arranged; none: by their place in the mesh. */
  by?: "mesh" | "host" | "time";
  metric?: MetricKey;
  /** The rank that is looked at. */
  sel?: number;
}

const ARRANGED = ["mesh", "host", "time"] as const;

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "mesh",
  validateSearch: (search: Record<string, unknown>): MeshSearch => {
    const by = ARRANGED.find((known) => known === search.by);
    const metric = METRICS.find((known) => known.key === search.metric)?.key;
    const sel = Number.isInteger(search.sel) && (search.sel as number) >= 0 ? (search.sel as number) : undefined;
    return { ...(by && { by }), ...(metric && { metric }), ...(sel !== undefined && { sel }) };
  },
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
