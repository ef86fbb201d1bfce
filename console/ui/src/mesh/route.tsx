import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { runRoute } from "../app/roots";
import { count, oneOf, searchOf } from "../app/search";
import { METRICS, type MetricKey } from "./columns";

export interface MeshSearch {
  /** How ranks are arranged; none: by their place in the mesh. */
  by?: "mesh" | "host" | "time";
  metric?: MetricKey;
  /** The rank that is looked at. */
  sel?: number;
}

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "mesh",
  validateSearch: searchOf<MeshSearch>({
    by: oneOf(["mesh", "host", "time"] as const),
    metric: oneOf(METRICS.map((known) => known.key)),
    sel: count,
  }),
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
