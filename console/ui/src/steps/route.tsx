import { createRoute, lazyRouteComponent, Outlet } from "@tanstack/react-router";
import { runRoute } from "../app/roots";
import { count, searchOf } from "../app/search";

export interface StepSearch {
  /** Whose batch is shown; none: rank 0's. */
  rank?: number;
  /** One microbatch of it; none: all. */
  microbatch?: number;
}

const validateSearch = searchOf<StepSearch>({ rank: count, microbatch: count });

const base = createRoute({ getParentRoute: () => runRoute, path: "steps", component: Outlet, validateSearch });

/** Without a step: the newest one that all ranks have consumed. */
const newest = createRoute({
  getParentRoute: () => base,
  path: "/",
  component: lazyRouteComponent(() => import("./Newest"), "Newest"),
});

const one = createRoute({
  getParentRoute: () => base,
  path: "$step",
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});

export const route = base.addChildren([newest, one]);
