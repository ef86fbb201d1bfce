import { Skeleton } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, call, type Model } from "../api/client";
import { useRun } from "../app/useRun";
import { ChartWithTable, GuardedButton, Icon, Page, ProblemNotice, StatusMark, toneOf } from "../ui";
import { Figures } from "./Figures";
import classes from "./overview.module.css";
import { Progress } from "./Progress";
import { useOverview } from "./query";
import { WaitChart, WaitTable } from "./WaitChart";
import { LoadedStages, Skew, SlowestRanks, Stalls, UnhealthySources } from "./Worst";

export function Screen() {
  const { run, stream } = useRun();
  const { data: view, error, refetch } = useOverview(run, stream);
  return (
    <Page title="Overview" run={run} lead={view && <Lead view={view} />} actions={view && <Resume view={view} />}>
      {error && <ProblemNotice error={error} onRetry={() => void refetch()} />}
      {view ? <Body view={view} /> : !error && <Waiting />}
    </Page>
  );
}

function Lead({ view }: { view: Model<"OverviewView"> }) {
  return (
    <>
      <StatusMark tone={toneOf(view.state)} word={view.state} />
      <span>
        stream {view.stream}, {view.num_ranks} ranks
        {view.generation >= 0 && `, generation ${view.generation}`}
      </span>
    </>
  );
}

/** A paused or failed run goes on from here. */
function Resume({ view }: { view: Model<"OverviewView"> }) {
  const queries = useQueryClient();
  const resume = useMutation({
    mutationFn: () => call(api.POST("/api/v1/runs/{run}/resume", { params: { path: { run: view.run } } })),
    onSettled: () => queries.invalidateQueries(),
  });
  if (view.state !== "paused" && view.state !== "failed") return null;
  return (
    <>
      <GuardedButton needs="publisher" onClick={() => resume.mutate()} loading={resume.isPending}>
        Let it go on
      </GuardedButton>
      {resume.error && <ProblemNotice error={resume.error} />}
    </>
  );
}

function Body({ view }: { view: Model<"OverviewView"> }) {
  const says = view.reason || view.waiting_text;
  return (
    <>
      {says && (
        <p className={classes.says} role="status">
          <Icon name="warn" />
          {says}
        </p>
      )}
      <section className={classes.counters} aria-label="Counters">
        <Figures view={view} />
        <Progress view={view} />
      </section>
      <ChartWithTable
        title="Data wait per step"
        chart={<WaitChart waits={view.waits} />}
        table={<WaitTable waits={view.waits} />}
      />
      <div className={classes.worst}>
        <SlowestRanks view={view} />
        <LoadedStages view={view} />
        <UnhealthySources view={view} />
        <Skew view={view} />
        <Stalls view={view} />
      </div>
    </>
  );
}

function Waiting() {
  return (
    <>
      <Skeleton height={152} />
      <Skeleton height={226} />
      <div className={classes.worst}>
        <Skeleton height={200} />
        <Skeleton height={200} />
        <Skeleton height={200} />
      </div>
    </>
  );
}
