import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { rootRoute, shellRoute } from "../app/roots";

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: "/access",
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});

export const signInRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/sign-in",
  component: lazyRouteComponent(() => import("./SignIn"), "SignIn"),
});
