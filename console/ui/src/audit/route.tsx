import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "../app/roots";
import { searchOf, text } from "../app/search";

export interface AuditSearch {
  run?: string;
  author?: string;
  action?: string;
}

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: "/audit",
  validateSearch: searchOf<AuditSearch>({ run: text, author: text, action: text }),
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
