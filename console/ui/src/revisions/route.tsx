import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { runRoute } from "../app/roots";

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "revisions",
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
