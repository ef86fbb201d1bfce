import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "../app/roots";

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: "/runs",
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
