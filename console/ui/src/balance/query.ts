import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { api, call, type Model } from "../api/client";
import { useEvents } from "../api/events";
import type { BalanceSearch } from "./route";

export type Balance = Model<"BalanceView">;
export type RankCosts = NonNullable<Balance["ranks"]>;

const SOONEST_MS = 4_000;
const LAST = -1;

interface Window extends Pick<BalanceSearch, "from" | "to"> {
  sources?: string;
}

/** Steps and shares of a window, and its last step by dp rank. Without a window it follows the newest steps, read again as the
 * stream moves on. */
export function useBalance(run: string, stream: string, { from, to, sources }: Window) {
  const client = useQueryClient();
  const asked = useRef(0);
  const key = ["balance", run, stream, from ?? "", to ?? "", sources ?? ""];
  useEvents("progress", () => {
    if (to !== undefined || Date.now() - asked.current < SOONEST_MS) return;
    asked.current = Date.now();
    void client.invalidateQueries({ queryKey: key });
  });
  return useQuery({
    queryKey: key,
    queryFn: () => {
      const query = { stream, from, to, sources, step: LAST };
      return call(api.GET("/api/v1/runs/{run}/balance", { params: { path: { run }, query } }));
    },
    placeholderData: keepPreviousData,
  });
}

/** One step by dp rank, asked for unless `known` is of that step. What a step holds does not change. */
export function useRankCosts(run: string, stream: string, step: number | undefined, known: RankCosts | null) {
  const isKnown = known?.step === step;
  const asked = useQuery({
    queryKey: ["balance-step", run, stream, step],
    enabled: step !== undefined && !isKnown,
    queryFn: async () => {
      const at = step as number;
      const query = { stream, from: at, to: at + 1, step: at };
      const view = await call(api.GET("/api/v1/runs/{run}/balance", { params: { path: { run }, query } }));
      return view.ranks;
    },
    placeholderData: keepPreviousData,
    staleTime: 60_000,
  });
  return isKnown ? { ...asked, data: known } : asked;
}
