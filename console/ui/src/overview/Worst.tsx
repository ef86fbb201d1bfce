import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Model } from "../api/client";
import { formatExact, formatSeconds, formatShare, Panel, StatusMark, toneOf } from "../ui";
import classes from "./overview.module.css";

type View = Model<"OverviewView">;

function Lines({ none, children }: { none: string; children: ReactNode[] }) {
  if (children.length === 0) return <p className={classes.none}>{none}</p>;
  return <ol className={classes.lines}>{children}</ol>;
}

export function SlowestRanks({ view }: { view: View }) {
  return (
    <Panel
      title="Slowest ranks"
      aside={
        <Link to="/runs/$run/mesh" params={{ run: view.run }}>
          All {formatExact(view.num_ranks)}
        </Link>
      }
    >
      <Lines none={view.num_ranks ? "All ranks go together." : "No rank has joined yet."}>
        {view.slowest_ranks.map((line) => (
          <li key={line.rank}>
            <span className={classes.lineName}>rank {line.rank}</span>
            <StatusMark tone={toneOf(line.state)} word={line.state} />
            <span className={classes.lineNumber}>
              {line.behind > 0
                ? `${formatExact(line.behind)} ${line.behind === 1 ? "step" : "steps"} behind`
                : "with the others"}
              <span className="lm-muted">
                {line.wait_s === null ? "wait not told" : `waits ${formatSeconds(line.wait_s)} a step`}, seen{" "}
                {formatSeconds(Math.round(line.seen_s))} ago
              </span>
            </span>
          </li>
        ))}
      </Lines>
    </Panel>
  );
}

export function LoadedStages({ view }: { view: View }) {
  return (
    <Panel
      title="Most loaded stages"
      aside={
        <Link to="/runs/$run/graph" params={{ run: view.run }}>
          Graph
        </Link>
      }
    >
      <Lines none="No process has told how busy it is.">
        {view.loaded_stages.map((line) => (
          <li key={line.node}>
            <span className={classes.lineName}>{line.label}</span>
            <Split busy={line.busy} blocked={line.blocked} />
            <span className={classes.lineNumber}>
              {line.busy === null ? "load not told" : `${formatShare(line.busy)} busy`}
              <span className="lm-muted">{line.says}</span>
            </span>
          </li>
        ))}
      </Lines>
    </Panel>
  );
}

/** Busy and blocked parts of a stage's time; the rest is idle. */
function Split({ busy, blocked }: { busy: number | null; blocked: number | null }) {
  if (busy === null) return <span className={classes.split} data-unknown />;
  const blockedPart = blocked ?? 0;
  return (
    <span className={classes.split} aria-hidden="true">
      <i className={classes.splitBusy} style={{ width: `${busy * 100}%` }} />
      <i className={classes.splitBlocked} style={{ width: `${blockedPart * 100}%` }} />
    </span>
  );
}

export function UnhealthySources({ view }: { view: View }) {
  return (
    <Panel
      title="Unhealthiest sources"
      aside={
        <Link to="/runs/$run/sources" params={{ run: view.run }}>
          All sources
        </Link>
      }
    >
      <Lines none="No source has an error, a retry or a bad sample.">
        {view.unhealthy_sources.map((line) => (
          <li key={line.source}>
            <span className={classes.lineName}>{line.source}</span>
            <StatusMark tone={toneOf(line.state)} word={line.state} />
            <span className={classes.lineNumber}>
              {formatExact(line.errors)} errors, {formatExact(line.retries)} retries, {formatExact(line.bad)} bad
              samples
              {line.last_error && (
                <span className={classes.clipped} title={line.last_error}>
                  {line.last_error}
                </span>
              )}
            </span>
          </li>
        ))}
      </Lines>
    </Panel>
  );
}

const KINDS = [
  ["cost", "Cost", "planned compute, by dp rank"],
  ["tokens", "Tokens", "planned tokens, by dp rank"],
  ["wait", "Wait", "time waited for data, by rank"],
] as const;

export function Skew({ view }: { view: View }) {
  return (
    <Panel
      title="Skew"
      aside={<span>largest over mean{view.window_s ? `, last ${formatSeconds(Math.round(view.window_s))}` : ""}</span>}
    >
      <dl className={classes.skew}>
        {KINDS.map(([key, name, what]) => {
          const value = view.skew[key];
          return (
            <div key={key}>
              <dt>{name}</dt>
              <dd>
                {value === null ? (
                  <span className="lm-muted">not known yet</span>
                ) : (
                  <b className="lm-num" title={`1 is even: ${what}`}>
                    {value.toFixed(3)}
                    <span className="lm-unit">×</span>
                  </b>
                )}
                <span className="lm-muted">{what}</span>
              </dd>
            </div>
          );
        })}
      </dl>
    </Panel>
  );
}

export function Stalls({ view }: { view: View }) {
  return (
    <Panel title="Stalls" aside={<span>since the planner started</span>}>
      <Lines none="The stream has not waited for anybody.">
        {view.stalls.slice(0, 6).map((stall) => (
          <li key={stall.from_at}>
            <span className={classes.lineName}>step {formatExact(stall.step)}</span>
            {stall.until_at === null ? <StatusMark tone="warn" word="waits" /> : <StatusMark tone="idle" word="over" />}
            <span className={classes.lineNumber}>
              {formatSeconds(Math.max(0, (stall.until_at ?? view.at) - stall.from_at))}
              <span className="lm-muted">{stall.text}</span>
            </span>
          </li>
        ))}
      </Lines>
    </Panel>
  );
}
