import { createRoute, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { runRoute, shellRoute } from "../app/roots";

export interface SourcesSearch {
  state?: string;
  q?: string;
}

const text = (value: unknown) => (typeof value === "string" && value ? value : undefined);

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "sources",
  validateSearch: (search: Record<string, unknown>): SourcesSearch => ({
    state: text(search.state),
    q: text(search.q),
  }),
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});

/** `/sources` is the sources of the run that was looked at last. */
export const shortRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/sources",
  beforeLoad: () => {
    const run = sessionStorage.getItem("loadmaster.run");
    if (run) throw redirect({ to: "/runs/$run/sources", params: { run } });
    throw redirect({ to: "/runs" });
  },
});
