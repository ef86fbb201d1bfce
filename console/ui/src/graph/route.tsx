import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { runRoute } from "../app/roots";
import { searchOf, text } from "../app/search";

export interface GraphSearch {
  /** The stage that is looked at. */
  sel?: string;
  /** The group that is shown in parts. */
  expand?: string;
}

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "graph",
  validateSearch: searchOf<GraphSearch>({ sel: text, expand: text }),
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
