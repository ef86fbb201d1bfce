import { createRootRoute, createRoute, redirect, retainSearchParams } from "@tanstack/react-router";
import { Missing } from "./Missing";
import { Shell } from "./Shell";
import { searchOf, text } from "./search";

/** The routes that screens hang below. A screen's own is in `src/<screen>/route.tsx`, registered in `router.tsx`. */
export const rootRoute = createRootRoute({ notFoundComponent: Missing });

/** Everything with navigation around it. */
export const shellRoute = createRoute({ getParentRoute: () => rootRoute, id: "shell", component: Shell });

export const indexRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/runs" });
  },
});

export interface RunSearch {
  /** The stream that is looked at; none: train. */
  stream?: string;
}

/** `/runs/$run`: what is about one run. Its `stream` stays in the address when one moves from screen to screen. */
export const runRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/runs/$run",
  validateSearch: searchOf<RunSearch>({ stream: text }),
  search: { middlewares: [retainSearchParams<RunSearch>(["stream"])] },
});
