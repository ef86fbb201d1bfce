import { Skeleton } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, call, type Model } from "../api/client";
import { useRun } from "../app/useRun";
import { whole } from "../curves/format";
import { overReason } from "../schedule/ending";
import { type ScheduleView, scheduleOf, useRefresh, useRevisions, useScheduleView } from "../schedule/queries";
import { ReviewDialog } from "../schedule/ReviewDialog";
import { wholeSpan } from "../schedule/view";
import { EmptyState, Icon, Page, Panel, ProblemNotice } from "../ui";
import { Comparison } from "./Comparison";
import classes from "./revisions.module.css";
import { pairOf, type RevisionsSearch, validateSearch } from "./search";
import { Timeline } from "./Timeline";

const PAGE = 50;

/** All revisions of a run's schedule: who, when, why, from which step; any two beside each other; and the way back. */
export function Screen() {
  const { run } = useRun();
  const view = useScheduleView(run);
  if (view.data) return <Revisions run={run} view={view.data} />;
  return (
    <Page title="Revisions" run={run}>
      {view.error ? (
        <ProblemNotice error={view.error} onRetry={() => void view.refetch()} />
      ) : (
        <Skeleton height={480} radius={8} />
      )}
    </Page>
  );
}

function Revisions({ run, view }: { run: string; view: ScheduleView }) {
  const search = validateSearch(useSearch({ strict: false }) as Record<string, unknown>);
  const navigate = useNavigate();
  const setSearch = (change: RevisionsSearch) =>
    void navigate({
      to: ".",
      search: (before: object) => ({ ...before, ...change }),
      replace: true,
      resetScroll: false,
    });
  const pages = useRevisionPages(run, view.revision);
  const pair = pairOf(search, view.revision);
  const [restored, setRestored] = useState<number | null>(null);
  const [note, setNote] = useState("");
  const heads = pages.data?.pages.flat() ?? [];
  const over = overReason(view.end_step ?? view.until_steps, view.first_free);
  return (
    <Page
      title="Revisions"
      run={run}
      isWide
      lead={
        <span className="lm-num">
          Revision {view.revision} is the newest; {over || `changes begin at step ${whole(view.first_free)} or later`}
        </span>
      }
    >
      <div role="status" className={classes.note} data-shown={note !== "" || undefined}>
        {note && <Icon name="ok" />} {note}
      </div>
      {pages.error && <ProblemNotice error={pages.error} />}
      <div className={classes.layout}>
        <Panel title="Timeline">
          <Timeline
            heads={heads}
            view={view}
            pair={pair}
            over={over}
            onPick={setSearch}
            onRestore={setRestored}
            onMore={pages.hasNextPage ? () => void pages.fetchNextPage() : undefined}
            isLoading={pages.isFetchingNextPage}
          />
        </Panel>
        {pair === null ? (
          <EmptyState title="Nothing to compare.">
            There is one revision: what the run was created with. Publish from the schedule editor to make another.
          </EmptyState>
        ) : (
          <Comparison run={run} view={view} {...pair} onPick={setSearch} />
        )}
      </div>
      {restored !== null && (
        <Restore run={run} view={view} revision={restored} onClose={() => setRestored(null)} onNote={setNote} />
      )}
    </Page>
  );
}

/** Newest first; read anew from the beginning when there is a newer one. */
function useRevisionPages(run: string, newest: number) {
  return useInfiniteQuery({
    queryKey: ["schedule", run, "revisions", newest],
    initialPageParam: undefined as number | undefined,
    queryFn: ({ pageParam, signal }) =>
      call(
        api.GET("/api/v1/runs/{run}/revisions", {
          params: { path: { run }, query: { limit: PAGE, ...(pageParam === undefined ? {} : { before: pageParam }) } },
          signal,
        }),
      ),
    getNextPageParam: (page: Model<"RevisionHead">[]) => (page.length === PAGE ? page.at(-1)?.revision : undefined),
    placeholderData: (before) => before,
  });
}

interface RestoreProps {
  run: string;
  view: ScheduleView;
  revision: number;
  onClose: () => void;
  onNote: (text: string) => void;
}

/** An old schedule again, as a new revision: reviewed like any other change. */
function Restore({ run, view, revision, onClose, onNote }: RestoreProps) {
  const schedule = useRevisions(run, [revision]).get(revision);
  const refresh = useRefresh(run);
  if (schedule === undefined) return null;
  const before = scheduleOf(view);
  return (
    <ReviewDialog
      title={`Restore revision ${revision}`}
      run={run}
      view={view}
      base={view.revision}
      before={before}
      after={schedule}
      change={{ is: "restore", revision }}
      firstFree={view.first_free}
      span={wholeSpan([before, schedule], view.first_free, view.end_step ?? view.until_steps)}
      message={`Restore revision ${revision}`}
      onClose={onClose}
      onOutcome={(outcome) => {
        if (outcome.is === "revision")
          onNote(`Revision ${outcome.revision} is in force from step ${outcome.fromStep} on.`);
        else if (outcome.is === "scheduled") onNote(`Scheduled for step ${outcome.atStep}.`);
        else if (outcome.is === "moved")
          onNote(`Revision ${outcome.newest} came meanwhile. Look at it, then restore again.`);
        if (outcome.is === "revision" || outcome.is === "scheduled" || outcome.is === "moved") onClose();
        void refresh();
      }}
    />
  );
}
