import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, call, callTagged, ifMatch, type Model } from "../api/client";
import { useEvents } from "../api/events";
import { asProblem } from "../api/problem";
import { fromJson, type Schedule, sameSchedule, toJson } from "../curves/schedule";
import type { SaveResult } from "./sync";

export type ScheduleView = Model<"ScheduleView">;
export type DraftView = Model<"DraftView">;
export type RevisionView = Model<"RevisionView">;
export type ScheduledHead = Model<"ScheduledHead">;

const keyOf = (run: string, ...more: (string | number)[]) => ["schedule", run, ...more];

/** The newest schedule of a run; read anew whenever the planner says that it changed. */
export function useScheduleView(run: string) {
  const queries = useQueryClient();
  useEvents<{ run: string }>("schedule", (event) => {
    if (event.run === run) void queries.invalidateQueries({ queryKey: keyOf(run, "newest") });
  });
  return useQuery({
    queryKey: keyOf(run, "newest"),
    queryFn: ({ signal }) => call(api.GET("/api/v1/runs/{run}/schedule", { params: { path: { run } }, signal })),
    refetchInterval: 5_000,
  });
}

/** Read the newest schedule again, now. */
export function useRefresh(run: string): () => Promise<void> {
  const queries = useQueryClient();
  return () => queries.invalidateQueries({ queryKey: ["schedule", run] });
}

const revisionQuery = (run: string, revision: number) => ({
  queryKey: keyOf(run, "revision", revision),
  queryFn: () => readRevision(run, revision),
  staleTime: Number.POSITIVE_INFINITY,
});

/** Revisions are immutable: each is read once. */
export function useRevisions(run: string, numbers: readonly number[]): Map<number, Schedule> {
  return useQueries({
    queries: numbers.map((number) => revisionQuery(run, number)),
    combine: (results) =>
      new Map(results.flatMap(({ data }): [number, Schedule][] => (data ? [[data.revision, scheduleOf(data)]] : []))),
  });
}

export function useRevision(run: string, number: number | undefined) {
  return useQuery({ ...revisionQuery(run, number ?? -1), enabled: number !== undefined });
}

export function readRevision(run: string, revision: number): Promise<RevisionView> {
  return call(api.GET("/api/v1/runs/{run}/revisions/{revision}", { params: { path: { run, revision } } }));
}

const converted = new WeakMap<object, Schedule>();

/** The schedule of a revision or a draft; the same object for the same answer. */
export function scheduleOf(view: { schedule: Model<"ScheduleSpec"> }): Schedule {
  const known = converted.get(view.schedule);
  if (known) return known;
  const schedule = fromJson(view.schedule);
  converted.set(view.schedule, schedule);
  return schedule;
}

/** An author's draft on the server; null: there is none. The list is asked first, so that none is no error. */
export async function readDraft(run: string, author: string): Promise<DraftView | null> {
  if (!author) return null;
  const heads = await call(api.GET("/api/v1/runs/{run}/drafts", { params: { path: { run } } }));
  if (!heads.some((head) => head.author === author)) return null;
  return call(api.GET("/api/v1/runs/{run}/drafts/{author}", { params: { path: { run, author } } }));
}

interface Wanted {
  base: number;
  schedule: Schedule | null;
}

/** Write a draft over a version, or throw that one away. Never throws. */
export async function saveDraft(run: string, author: string, draft: Wanted, version: number): Promise<SaveResult> {
  const path = { run, author };
  try {
    if (draft.schedule === null) {
      const header = { "if-match": ifMatch(version) };
      await call(api.DELETE("/api/v1/runs/{run}/drafts/{author}", { params: { path, header } }));
      return { is: "saved", version: 0 };
    }
    const { tag } = await callTagged(
      api.PUT("/api/v1/runs/{run}/drafts/{author}", {
        params: { path, header: { "if-match": ifMatch(version) } },
        body: { base: draft.base, schedule: toJson(draft.schedule) as Model<"ScheduleSpec"> },
      }),
    );
    return { is: "saved", version: tag };
  } catch (error) {
    const problem = asProblem(error);
    if (problem.status === 412) return whose(run, author, draft, Number(problem.details.version ?? 0));
    return { is: problem.isPassing ? "passing" : "refused", reason: problem.message };
  }
}

/** Another version is there. Where it is this very draft, the answer to an earlier write was lost, say to a reload. */
async function whose(run: string, author: string, draft: Wanted, version: number): Promise<SaveResult> {
  const found = await readDraft(run, author).catch(() => undefined);
  if (found === undefined) return { is: "elsewhere", version };
  const isOwn =
    found && draft.schedule
      ? found.base === draft.base && sameSchedule(scheduleOf(found), draft.schedule)
      : found === draft.schedule;
  return { is: isOwn ? "saved" : "elsewhere", version: found?.version ?? 0 };
}
