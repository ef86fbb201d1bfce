import { type UseQueryResult, useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Model } from "../api/client";
import { overviewQuery } from "../overview/query";
import {
  Ago,
  type Column,
  DataTable,
  EmptyState,
  formatCount,
  formatExact,
  formatShare,
  NameAndState,
  Page,
  ProblemNotice,
  StatusMark,
  toneOf,
  useLiveInterval,
} from "../ui";
import { useRuns } from "./query";
import { route } from "./route";
import classes from "./runs.module.css";

const PAGE = 25;
const REFRESH_MS = 5_000;

interface Row {
  run: Model<"RunView">;
  view: Model<"OverviewView"> | undefined;
  isFailed: boolean;
}

export function Screen() {
  const { state, q } = route.useSearch();
  const { data: runs = [], error, refetch, isPending } = useRuns();
  const [shown, setShown] = useState(PAGE);
  const found = useMemo(() => filterRuns(runs, state, q), [runs, state, q]);
  const rows = useRows(found.slice(0, shown));
  const total = `${formatExact(found.length)} of ${formatExact(runs.length)}`;
  return (
    <Page title="Runs" lead={!isPending && <span className="lm-num">{total}</span>} actions={<Filters runs={runs} />}>
      {error && <ProblemNotice error={error} onRetry={() => void refetch()} />}
      {!error && (
        <div className={classes.box}>
          <DataTable
            caption="Runs"
            columns={COLUMNS}
            rows={rows}
            rowKey={(row) => row.run.run}
            isLoading={isPending}
            onMore={found.length > shown ? () => setShown(shown + PAGE) : undefined}
            empty={<Nothing hasRuns={runs.length > 0} />}
          />
        </div>
      )}
    </Page>
  );
}

/** Runs in a state whose name has all words of a search. */
export function filterRuns(runs: Model<"RunView">[], state?: string, q = ""): Model<"RunView">[] {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  return runs.filter(
    (run) => (!state || run.state === state) && words.every((word) => run.run.toLowerCase().includes(word)),
  );
}

function useRows(runs: Model<"RunView">[]): Row[] {
  const refetchInterval = useLiveInterval(REFRESH_MS);
  return useQueries({
    queries: runs.map((run) => ({ ...overviewQuery(run.run, "train"), refetchInterval })),
    combine: (results: UseQueryResult<Model<"OverviewView">>[]) =>
      results.map((result, index) => ({
        run: runs[index] as Model<"RunView">,
        view: result.data,
        isFailed: result.isError,
      })),
  });
}

function Filters({ runs }: { runs: Model<"RunView">[] }) {
  const value = route.useSearch();
  const navigate = route.useNavigate();
  const states = [...new Set(runs.map((run) => run.state))].sort();
  return (
    <NameAndState
      what="runs"
      states={states}
      value={value}
      onChange={(changed) => void navigate({ search: (old) => ({ ...old, ...changed }), replace: true })}
    />
  );
}

function Nothing({ hasRuns }: { hasRuns: boolean }) {
  if (hasRuns) return <EmptyState title="No run is called that, in that state." />;
  return (
    <EmptyState title="No run has registered." command="loadmaster up RUN.yaml">
      Start one with a run spec; it shows up here by itself.
    </EmptyState>
  );
}

const unknown = (row: Row) => <span className="lm-muted">{row.isFailed ? "not readable" : "…"}</span>;

const COLUMNS: Column<Row>[] = [
  {
    key: "run",
    title: "Run",
    cell: ({ run, view }) => (
      <>
        <Link to="/runs/$run" params={{ run: run.run }} className={classes.name}>
          {run.run}
        </Link>
        {(run.reason || view?.waiting_text) && <p className={classes.reason}>{run.reason || view?.waiting_text}</p>}
      </>
    ),
  },
  { key: "state", title: "State", cell: ({ run }) => <StatusMark tone={toneOf(run.state)} word={run.state} /> },
  {
    key: "revision",
    title: "Revision",
    isNumber: true,
    cell: ({ run, view }) => view?.revision_in_force ?? run.revision,
  },
  {
    key: "step",
    title: "Step",
    isNumber: true,
    cell: (row) =>
      row.view ? (
        <>
          {formatExact(row.view.acknowledged)}
          {row.view.end_step !== null && <span className="lm-unit">/ {formatExact(row.view.end_step)}</span>}
        </>
      ) : (
        unknown(row)
      ),
  },
  {
    key: "tokens",
    title: "Tokens",
    isNumber: true,
    cell: (row) => (row.view ? (row.view.tokens === null ? "not known" : formatCount(row.view.tokens)) : unknown(row)),
  },
  {
    key: "wait",
    title: "Data wait",
    isNumber: true,
    cell: (row) =>
      row.view ? (row.view.wait_share === null ? "not told" : formatShare(row.view.wait_share)) : unknown(row),
  },
  { key: "worst", title: "Worst rank", cell: (row) => (row.view ? <WorstRank view={row.view} /> : unknown(row)) },
  {
    key: "checkpoint",
    title: "Last checkpoint",
    cell: (row) =>
      row.view ? (
        row.view.last_checkpoint ? (
          <>
            step {formatExact(row.view.last_checkpoint.step)}
            {row.view.last_checkpoint.at !== null && (
              <span className="lm-muted">
                {" "}
                <Ago at={row.view.last_checkpoint.at} />
              </span>
            )}
          </>
        ) : (
          "none yet"
        )
      ) : (
        unknown(row)
      ),
  },
];

function WorstRank({ view }: { view: Model<"OverviewView"> }) {
  const [worst] = view.slowest_ranks;
  if (!worst) return <span className="lm-muted">{view.num_ranks ? "all together" : "no ranks yet"}</span>;
  return (
    <>
      {worst.rank} <StatusMark tone={toneOf(worst.state)} word={worst.state} />
    </>
  );
}
