import { Button, Skeleton } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useRun } from "../app/useRun";
import { EmptyState, formatExact, Page, ProblemNotice } from "../ui";
import classes from "./balance.module.css";
import { type Balance, useBalance } from "./query";
import { StepRanks } from "./Ranks";
import type { BalanceSearch } from "./route";
import { SourceOverTime, SourceShares } from "./Shares";
import { Spread } from "./Spread";
import { shifted, zoomed } from "./series";

const api = getRouteApi("/shell/runs/$run/balance");

/** What was planned against what was served, and how even the ranks are. */
export function Screen() {
  const { run, stream } = useRun();
  const { from, to, step, source } = api.useSearch();
  const navigate = api.useNavigate();
  const change = (next: Partial<BalanceSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...next }), replace: true });
  const query = useBalance(run, stream, { from, to });
  const view = query.data;
  const shown = step ?? view?.steps.step.at(-1);
  return (
    <Page
      title="Balance"
      run={run}
      lead={view && <Lead view={view} isLive={to === undefined} />}
      actions={view && <Windows view={view} isLive={to === undefined} onChange={change} />}
    >
      {query.error && !view && <ProblemNotice error={query.error} onRetry={() => void query.refetch()} />}
      {!view && !query.error && <Skeleton height={560} radius="md" />}
      {view && view.steps.step.length === 0 && <Nothing isLive={to === undefined} />}
      {view && view.steps.step.length > 0 && (
        <>
          <Spread run={run} view={view} step={shown} onStep={(next) => change({ step: next })} />
          <StepRanks run={run} stream={stream} step={shown} known={view.ranks ?? null} />
          <div className={classes.pair}>
            <SourceShares view={view} onSource={(next) => change({ source: next })} />
            <OneSource
              {...{ run, stream, from, to, view }}
              source={source}
              onSource={(next) => change({ source: next })}
            />
          </div>
        </>
      )}
    </Page>
  );
}

interface OneSourceProps extends Pick<BalanceSearch, "from" | "to" | "source"> {
  run: string;
  stream: string;
  view: Balance;
  onSource: (source: string) => void;
}

/** The chosen source, asked for by name where it is none of the greatest. */
function OneSource({ run, stream, from, to, view, source, onSource }: OneSourceProps) {
  const name = source ?? view.shares.source[0] ?? "";
  const isThere = view.shares.source.includes(name);
  const asked = useBalance(run, stream, { from, to, sources: isThere ? undefined : name });
  return <SourceOverTime view={isThere ? view : (asked.data ?? view)} source={name} onSource={onSource} />;
}

function Nothing({ isLive }: { isLive: boolean }) {
  return (
    <EmptyState title={isLive ? "No step is planned yet." : "No step of this window is in the log."}>
      {isLive
        ? "Steps are planned as soon as all ranks have joined."
        : "Choose another window, or follow the newest steps."}
    </EmptyState>
  );
}

function Lead({ view, isLive }: { view: Balance; isLive: boolean }) {
  const [first, last] = [view.first_step, Math.max(view.first_step, view.last_step - 1)];
  return (
    <>
      <span>
        steps {formatExact(first)} to {formatExact(last)}
      </span>
      <span>{isLive ? "follows the newest steps" : "held still"}</span>
      <span>generation {view.generation}</span>
    </>
  );
}

interface WindowsProps {
  view: Balance;
  isLive: boolean;
  onChange: (next: Partial<BalanceSearch>) => void;
}

function Windows({ view, isLive, onChange }: WindowsProps) {
  const [first, last] = [view.first_step, view.last_step];
  return (
    <>
      <Button variant="default" onClick={() => onChange(shifted(first, last, -1))}>
        Older
      </Button>
      <Button variant="default" onClick={() => onChange(shifted(first, last, 1))}>
        Newer
      </Button>
      <Button variant="default" onClick={() => onChange(zoomed(first, last, 0.5))}>
        Closer
      </Button>
      <Button variant="default" onClick={() => onChange(zoomed(first, last, 2))}>
        Wider
      </Button>
      <Button
        variant={isLive ? "filled" : "default"}
        aria-pressed={isLive}
        onClick={() => onChange({ from: undefined, to: undefined, step: undefined })}
      >
        Newest
      </Button>
    </>
  );
}
