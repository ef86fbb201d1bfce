import { createRouter } from "@tanstack/react-router";
import { route as access, signInRoute } from "../access/route";
import { route as audit } from "../audit/route";
import { route as balance } from "../balance/route";
import { route as checkpoints } from "../checkpoints/route";
import { route as graph } from "../graph/route";
import { route as mesh } from "../mesh/route";
import { route as overview } from "../overview/route";
import { route as revisions } from "../revisions/route";
import { route as runs } from "../runs/route";
import { route as schedule } from "../schedule/route";
import { shortRoute as shortSources, route as sources } from "../sources/route";
import { route as steps } from "../steps/route";
import { ScreenError } from "./Missing";
import { indexRoute, rootRoute, runRoute, shellRoute } from "./roots";

const ofRun = [overview, schedule, revisions, graph, mesh, balance, sources, steps, checkpoints] as const;

const tree = rootRoute.addChildren([
  signInRoute,
  shellRoute.addChildren([indexRoute, runs, shortSources, audit, access, runRoute.addChildren([...ofRun])]),
]);

let hasBegun = false;

/** Where a page is opened for the first time there is nothing to go back to: setting it would cost a layout. */
function restoresScroll(): boolean {
  const [load] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  const isNew = !hasBegun && load?.type === "navigate";
  hasBegun = true;
  return !isNew;
}

export const router = createRouter({
  routeTree: tree,
  defaultPreload: "intent",
  defaultErrorComponent: ScreenError,
  scrollRestoration: restoresScroll,
  scrollToTopSelectors: ["#main"],
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
