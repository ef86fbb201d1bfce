import { Skeleton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { SESSION_KEY, useSession } from "../api/session";
import { useRun } from "../app/useRun";
import type { Schedule } from "../curves/schedule";
import { Page, ProblemNotice } from "../ui";
import { Editor } from "./Editor";
import { endLeft } from "./leaving";
import { type DraftView, readDraft, readRevision, type ScheduleView, scheduleOf, useScheduleView } from "./queries";
import type { Kept } from "./sync";
import { keptInTab, type Seed, seedOf } from "./tabCopy";

/** The schedule editor of a run: reads what it begins with, then leaves it to the editor. */
export function Screen() {
  const { run } = useRun();
  const view = useScheduleView(run);
  const session = useSession();
  const { isPending } = useQuery({ queryKey: SESSION_KEY, enabled: false });
  const seed = useSeed(run, session.name, view.data, !isPending);
  const error = view.error ?? seed.error;
  if (view.data && seed.data) {
    return <Editor key={`${run} ${session.name}`} run={run} view={view.data} seed={seed.data} />;
  }
  return (
    <Page title="Schedule" run={run} isWide>
      {error ? (
        <ProblemNotice error={error} onRetry={() => void view.refetch()} />
      ) : (
        <Skeleton height={560} radius={8} />
      )}
    </Page>
  );
}

/** The author's draft, from the server and from this tab, with the revision that it was made from. Read once. */
function useSeed(run: string, author: string, view: ScheduleView | undefined, isReady: boolean) {
  return useQuery({
    queryKey: ["draft seed", run, author],
    enabled: isReady && view !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    queryFn: () => readSeed(run, author, view as ScheduleView),
  });
}

async function readSeed(run: string, author: string, view: ScheduleView): Promise<Seed & { baseSchedule: Schedule }> {
  await endLeft(run, author);
  const server = await readDraft(run, author);
  const seed = seedOf(server && keptOf(server), author ? keptInTab(run, author) : null);
  const base = seed.draft?.base ?? view.revision;
  const baseView = base === view.revision ? view : await readRevision(run, base);
  return { ...seed, baseSchedule: scheduleOf(baseView) };
}

function keptOf(draft: DraftView): Kept {
  return { base: draft.base, version: draft.version, schedule: scheduleOf(draft) };
}
