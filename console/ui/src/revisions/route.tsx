import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { runRoute } from "../app/roots";
import { validateSearch } from "./search";

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "revisions",
  validateSearch,
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
