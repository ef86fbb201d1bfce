import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, call, type Model } from "../api/client";
import { useRun } from "../app/useRun";
import {
  type Column,
  DataTable,
  EmptyState,
  formatBytes,
  formatExact,
  Page,
  ProblemNotice,
  StatusMark,
  Time,
  useLiveInterval,
} from "../ui";
import classes from "./checkpoints.module.css";

type Row = Model<"CheckpointRow">;
const LIMIT = 50;
const REFRESH_MS = 10_000;

function useCheckpoints(run: string, stream: string) {
  return useInfiniteQuery({
    queryKey: ["checkpoints", run, stream],
    initialPageParam: 0,
    queryFn: ({ pageParam, signal }) => {
      const query = { stream, limit: LIMIT, before: pageParam || undefined };
      return call(api.GET("/api/v1/runs/{run}/checkpoints", { params: { path: { run }, query }, signal }));
    },
    getNextPageParam: (page) => page.next_before ?? undefined,
    placeholderData: keepPreviousData,
    refetchInterval: useLiveInterval(REFRESH_MS),
  });
}

export function Screen() {
  const { run, stream } = useRun();
  const query = useCheckpoints(run, stream);
  const first = query.data?.pages[0];
  const rows = query.data?.pages.flatMap((page) => page.rows) ?? [];
  return (
    <Page title="Checkpoints" run={run} lead={first && <Lead view={first} />}>
      {query.error && <ProblemNotice error={query.error} onRetry={() => void query.refetch()} />}
      {(query.data || !query.error) && (
        <div className={classes.box}>
          <DataTable
            caption={`Checkpoints of ${run}`}
            columns={columnsOf(run)}
            rows={rows}
            rowKey={(row) => `${row.generation}-${row.step}`}
            isLoading={query.isPending}
            onMore={query.hasNextPage ? () => void query.fetchNextPage() : undefined}
            isLoadingMore={query.isFetchingNextPage}
            empty={
              <EmptyState title="No checkpoint yet.">
                The planner writes its first one when the stream has been planned for a few steps.
              </EmptyState>
            }
          />
        </div>
      )}
      <p className="lm-muted">
        These are states of the planner: what is drawn next, from where, and what is owed to each source. A rank&rsquo;s
        own state is a step number; keep it beside the model&rsquo;s.
      </p>
    </Page>
  );
}

function Lead({ view }: { view: Model<"CheckpointsView"> }) {
  return (
    <>
      <span>
        a run can go on from any step from <b className="lm-num">{formatExact(view.held_from)}</b> on
      </span>
      <span>
        <span className="lm-num">{formatBytes(view.total_bytes)}</span> in all
      </span>
    </>
  );
}

function columnsOf(run: string): Column<Row>[] {
  return [
    { key: "step", title: "Step", isNumber: true, width: "110px", cell: (row) => <b>{formatExact(row.step)}</b> },
    {
      key: "restorable",
      title: "Restorable",
      cell: (row) => (
        <>
          <StatusMark
            tone={row.is_restorable ? "ok" : "warn"}
            word={row.is_restorable ? "restorable" : "not restorable"}
          />
          {row.reason && <p className={classes.reason}>{row.reason}</p>}
        </>
      ),
    },
    { key: "bytes", title: "Size", isNumber: true, cell: (row) => formatBytes(row.bytes) },
    { key: "generation", title: "Generation", isNumber: true, cell: (row) => row.generation },
    {
      key: "revision",
      title: "Revision in force",
      isNumber: true,
      cell: (row) => (
        <Link to="/runs/$run/revisions" params={{ run }}>
          {row.revision}
        </Link>
      ),
    },
    { key: "at", title: "Written", cell: (row) => <Time at={row.at} /> },
  ];
}
