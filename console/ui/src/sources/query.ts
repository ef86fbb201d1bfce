import { keepPreviousData, useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, call, callTagged, ifMatch, type Model } from "../api/client";
import { useEvents } from "../api/events";
import { asProblem } from "../api/problem";
import { useSession } from "../api/session";
import { useLiveInterval } from "../ui";

const LIMIT = 100;
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

/** A schedule in which a source is retired, or drawn from again. */
export function withRetired(
  schedule: Model<"ScheduleSpec">,
  source: string,
  isRetired: boolean,
): Model<"ScheduleSpec"> {
  const others = schedule.retired.filter((each) => each !== source);
  return { ...schedule, retired: isRetired ? [...others, source].sort() : others };
}

/** Writes "retire this source", or its opposite, into one's own draft. Nothing changes until the draft is published. */
export function useDraftSource(run: string) {
  const { name } = useSession();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: async ({ source, isRetired }: { source: string; isRetired: boolean }) => {
      const { base, schedule, tag } = await draftOrSchedule(run, name);
      const body = { base, schedule: withRetired(schedule, source, isRetired) };
      const params = { path: { run, author: name }, header: { "if-match": ifMatch(tag) } };
      return call(api.PUT("/api/v1/runs/{run}/drafts/{author}", { params, body }));
    },
    onSuccess: () => queries.invalidateQueries({ queryKey: ["draft", run] }),
  });
}

async function draftOrSchedule(run: string, author: string) {
  try {
    const draft = await callTagged(
      api.GET("/api/v1/runs/{run}/drafts/{author}", { params: { path: { run, author } } }),
    );
    return { base: draft.data.base, schedule: draft.data.schedule, tag: draft.tag };
  } catch (error) {
    if (asProblem(error).status !== 404) throw error;
    const { revision, schedule } = await call(api.GET("/api/v1/runs/{run}/schedule", { params: { path: { run } } }));
    return { base: revision, schedule, tag: 0 };
  }
}
