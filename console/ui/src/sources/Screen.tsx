import { Link, useNavigate } from "@tanstack/react-router";
import type { Model } from "../api/client";
import { useRefusal } from "../api/session";
import { useRun } from "../app/useRun";
import {
  Command,
  DataTable,
  EmptyState,
  formatExact,
  formatSeconds,
  NameAndState,
  Page,
  Panel,
  ProblemNotice,
  StatusMark,
  toneOf,
} from "../ui";
import { columnsOf } from "./columns";
import { useDraftRetired, useDraftSource, useSources } from "./query";
import { route } from "./route";
import classes from "./sources.module.css";

export function Screen() {
  const { run, stream } = useRun();
  const search = route.useSearch();
  const { data, error, isPending, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useSources(
    run,
    stream,
    search,
  );
  const draft = useDraftSource(run);
  const navigate = useNavigate();
  const first = data?.pages[0];
  const rows = data?.pages.flatMap((page) => page.rows) ?? [];
  const refusal = useRefusal("editor");
  const retired = useDraftRetired(run);
  const retire = (source: string, isRetired: boolean) => {
    const change = { source, isRetired };
    draft.mutate(change, { onSuccess: () => void navigate({ to: "/runs/$run/schedule", params: { run } }) });
  };
  return (
    <Page
      title="Sources"
      run={run}
      lead={first && <Lead view={first} />}
      actions={<Filters counts={first?.counts ?? {}} />}
    >
      {draft.error && <ProblemNotice title="The draft was not changed." error={draft.error} />}
      {error && <ProblemNotice error={error} onRetry={() => void refetch()} />}
      {(data || !error) && (
        <div className={classes.box}>
          <DataTable
            caption={`Sources of ${run}`}
            columns={columnsOf({ refusal, retired, onRetire: retire })}
            rows={rows}
            rowKey={(row) => row.name}
            isLoading={isPending}
            onMore={hasNextPage ? () => void fetchNextPage() : undefined}
            isLoadingMore={isFetchingNextPage}
            empty={<EmptyState title="No source is called that, in that state." />}
          />
        </div>
      )}
      <HowToAdd run={run} />
    </Page>
  );
}

/** A source is opened where its files are, by a command: the planner never touches them. */
function HowToAdd({ run }: { run: string }) {
  return (
    <Panel title="Add a source">
      <p className={classes.how}>
        Describe it under <code>sources</code> in a copy of the run's spec, then freeze it, where its files are to be
        seen:
      </p>
      <Command text={`loadmaster add-source RUN.yaml NAME --of ${run} --planner ${window.location.origin}`} />
      <p className={classes.how}>
        It needs <code>LOADMASTER_TOKEN</code>, a token of the role publisher. Nothing is drawn from the source before a
        revision gives it a weight:{" "}
        <Link to="/runs/$run/schedule" params={{ run }}>
          edit the schedule
        </Link>
        .
      </p>
    </Panel>
  );
}

function Lead({ view }: { view: Model<"SourcesView"> }) {
  return (
    <>
      {Object.entries(view.counts)
        .filter(([, count]) => count > 0)
        .map(([state, count]) => (
          <StatusMark key={state} tone={toneOf(state)} word={`${formatExact(count)} ${state}`} />
        ))}
      <span>
        {view.window_s ? `rates over the last ${formatSeconds(Math.round(view.window_s))}` : "no rate is known yet"}
      </span>
    </>
  );
}

function Filters({ counts }: { counts: Record<string, number> }) {
  const value = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <NameAndState
      what="sources"
      states={Object.entries(counts).map(([value, count]) => ({ value, label: `${value} (${count})` }))}
      value={value}
      onChange={(changed) => void navigate({ search: (old) => ({ ...old, ...changed }), replace: true })}
    />
  );
}
