import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Model } from "../api/client";
import { Ago, Figure, formatBytes, formatCount, formatExact, formatSeconds, formatShare } from "../ui";
import classes from "./overview.module.css";

type View = Model<"OverviewView">;
const SLOW_SHARE = 0.05;
const BAD_SHARE = 0.2;

const shown = (value: number | null, format: (value: number) => string) => (value === null ? null : format(value));

/** Splits "12.3 M" so that the unit is set apart. */
function parts(text: string | null): { value: string | null; unit: string } {
  if (text === null) return { value: null, unit: "" };
  const at = text.search(/[^\d.,\u202f-]/);
  return at < 0 ? { value: text, unit: "" } : { value: text.slice(0, at).trim(), unit: text.slice(at) };
}

function toneOfWait(share: number | null): "warn" | "bad" | undefined {
  if (share === null || share < SLOW_SHARE) return undefined;
  return share < BAD_SHARE ? "warn" : "bad";
}

/** The counters: what a glance must tell. */
export function Figures({ view }: { view: View }) {
  const { window_s } = view;
  return (
    <dl className={classes.figures}>
      <Figure label="Step" value={formatExact(view.acknowledged)} />
      <Figure label="Tokens" {...parts(shown(view.tokens, formatCount))} />
      <Figure label="Tokens / s" {...parts(shown(view.tokens_per_s, formatCount))} window_s={window_s} />
      <Figure label="Step time" {...parts(shown(view.step_s, formatSeconds))} window_s={window_s} />
      <Figure
        label="Data wait"
        {...parts(shown(view.wait_share, formatShare))}
        window_s={window_s}
        tone={toneOfWait(view.wait_share)}
        missing="no rank has told yet"
      />
      <Figure label="Fill" {...parts(shown(view.fill, formatShare))} window_s={window_s} />
      <Linked
        label="Revision"
        note={view.revision > view.revision_in_force ? `newest is ${view.revision}` : "in force"}
      >
        <Link to="/runs/$run/revisions" params={{ run: view.run }}>
          {view.revision_in_force}
        </Link>
      </Linked>
      <Linked
        label="Last checkpoint"
        note={
          view.last_checkpoint && (
            <>
              {formatBytes(view.last_checkpoint.bytes)}, <Ago at={view.last_checkpoint.at} now={view.at * 1000} />
            </>
          )
        }
      >
        {view.last_checkpoint ? (
          <Link to="/runs/$run/checkpoints" params={{ run: view.run }}>
            {formatExact(view.last_checkpoint.step)}
          </Link>
        ) : (
          <span className={classes.noneYet}>none yet</span>
        )}
      </Linked>
    </dl>
  );
}

function Linked({ label, note, children }: { label: string; note: ReactNode; children: ReactNode }) {
  return (
    <div className={classes.linked}>
      <dt>{label}</dt>
      <dd>{children}</dd>
      <dd className={classes.linkedNote}>{note}</dd>
    </div>
  );
}
