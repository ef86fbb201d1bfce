import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, call, type Model } from "../api/client";
import { useEvents } from "../api/events";
import { useLiveInterval } from "../ui";
import { withProgress } from "./waits";

/** How often lists of the worst are read again; counters come by events. */
const LISTS_MS = 4_000;

export function overviewQuery(run: string, stream: string) {
  return {
    queryKey: ["overview", run, stream],
    queryFn: ({ signal }: { signal: AbortSignal }) =>
      call(api.GET("/api/v1/runs/{run}/overview", { params: { path: { run }, query: { stream } }, signal })),
  };
}

/** A run's overview, kept fresh: counters by events as they come, lists every few seconds. */
export function useOverview(run: string, stream: string) {
  const queries = useQueryClient();
  const query = overviewQuery(run, stream);
  useEvents<Model<"ProgressEvent">>("progress", (event) => {
    const view = queries.getQueryData<Model<"OverviewView">>(query.queryKey);
    if (!view || view.run !== event.run || view.stream !== event.stream) return;
    if (view.generation === event.generation) queries.setQueryData(query.queryKey, withProgress(view, event));
    else void queries.invalidateQueries({ queryKey: query.queryKey });
  });
  return useQuery({ ...query, refetchInterval: useLiveInterval(LISTS_MS) });
}
