import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { runRoute } from "../app/roots";

export interface BalanceSearch {
  /** Steps [from, to); none: the last ones, as they come. */
  from?: number;
  to?: number;
  /** The step whose ranks are shown; none: the newest. */
  step?: number;
  /** The source whose shares are drawn. */
  source?: string;
}

const count = (value: unknown): number | undefined =>
  Number.isInteger(value) && (value as number) >= 0 ? (value as number) : undefined;

export const route = createRoute({
  getParentRoute: () => runRoute,
  path: "balance",
  validateSearch: (search: Record<string, unknown>): BalanceSearch => {
    const [from, to, step] = [count(search.from), count(search.to), count(search.step)];
    const source = typeof search.source === "string" && search.source ? search.source : undefined;
    return {
      ...(from !== undefined && { from }),
      ...(to !== undefined && { to }),
      ...(step !== undefined && { step }),
      ...(source && { source }),
    };
  },
  component: lazyRouteComponent(() => import("./Screen"), "Screen"),
});
