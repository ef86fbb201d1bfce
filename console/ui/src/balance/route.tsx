import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { runRoute } from "../app/roots";
import { count, searchOf, text } from "../app/search";

export interface BalanceSearch {
  /** Steps [from, to); none: the last ones, as they come. */
  from?: number;
  to?: number;
  /** The step whose ranks are shown; none: the newest. */
  step?: number;
  /** The source whose shares are drawn. */
  source?: string;
}

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "balance",
  validateSearch: searchOf<BalanceSearch>({ from: count, to: count, step: count, source: text }),
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
