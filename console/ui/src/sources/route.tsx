import { createRoute, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { runRoute, shellRoute } from "../app/roots";
import { searchOf, text } from "../app/search";

export interface SourcesSearch {
  state?: string;
  q?: string;
}

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "sources",
  validateSearch: searchOf<SourcesSearch>({ state: text, q: text }),
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
