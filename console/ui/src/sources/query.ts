import { keepPreviousData, useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, call, ifMatch, type Model } from "../api/client";
import { useEvents } from "../api/events";
import { useSession } from "../api/session";
import { toJson, withRetired } from "../curves/schedule";
import { readDraft, scheduleOf } from "../schedule/queries";
import { useLiveInterval } from "../ui";

const LIMIT = 60;
const REFRESH_MS = 5_000;
export type SourceState = Model<"SourceRow">["state"];

/** Sources of a run by name, page by page; read again when the planner says that some changed. */
export function useSources(run: string, stream: string, filter: { state?: string; q?: string }) {
  const queries = useQueryClient();
  const queryKey = ["sources", run, stream, filter.state ?? "", filter.q ?? ""];
  useEvents("sources", () => void queries.invalidateQueries({ queryKey }));
  return useInfiniteQuery({
    queryKey,
    initialPageParam: "",
    queryFn: ({ pageParam, signal }) =>
      call(
        api.GET("/api/v1/runs/{run}/sources/health", {
          params: {
            path: { run },
            query: {
              stream,
              limit: LIMIT,
              state: (filter.state as SourceState | undefined) ?? undefined,
              q: filter.q || undefined,
              after: pageParam || undefined,
            },
          },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next_after ?? undefined,
    placeholderData: keepPreviousData,
    refetchInterval: useLiveInterval(REFRESH_MS),
  });
}

/** Which sources one's own draft retires; undefined: there is no draft, the run's schedule is what one would edit. */
export function useDraftRetired(run: string): ReadonlySet<string> | undefined {
  const { name } = useSession();
  const { data } = useQuery({
    queryKey: ["schedule", run, "draft", name],
    enabled: name !== "",
    staleTime: 0,
    queryFn: () => readDraft(run, name),
  });
  return useMemo(() => (data ? new Set(data.schedule.retired) : undefined), [data]);
}

/** Writes "retire this source", or its opposite, into one's own draft. Nothing changes until the draft is published. */
export function useDraftSource(run: string) {
  const { name } = useSession();
  return useMutation({
    mutationFn: async ({ source, isRetired }: { source: string; isRetired: boolean }) => {
      const draft = await readDraft(run, name);
      const { base, schedule } = draft ?? (await readNewest(run));
      const changed = toJson(withRetired(scheduleOf({ schedule }), source, isRetired)) as Model<"ScheduleSpec">;
      const params = { path: { run, author: name }, header: { "if-match": ifMatch(draft?.version ?? 0) } };
      return call(api.PUT("/api/v1/runs/{run}/drafts/{author}", { params, body: { base, schedule: changed } }));
    },
  });
}

async function readNewest(run: string) {
  const { revision, schedule } = await call(api.GET("/api/v1/runs/{run}/schedule", { params: { path: { run } } }));
  return { base: revision, schedule };
}
