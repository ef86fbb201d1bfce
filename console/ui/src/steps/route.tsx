import { createRoute, lazyRouteComponent, Outlet } from "@tanstack/react-router";
import { runRoute } from "../app/roots";

export interface StepSearch {
  /** Whose batch is shown; none: rank 0's. */
  rank?: number;
  /** One microbatch of it; none: all. */
  microbatch?: number;
}

const count = (value: unknown): number | undefined =>
  Number.isInteger(value) && (value as number) >= 0 ? (value as number) : undefined;

function validateSearch(search: Record<string, unknown>): StepSearch {
  const [rank, microbatch] = [count(search.rank), count(search.microbatch)];
  return { ...(rank !== undefined && { rank }), ...(microbatch !== undefined && { microbatch }) };
}

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
