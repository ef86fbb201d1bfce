import { Button } from "@mantine/core";
import type { Model } from "../api/client";
import { whole } from "../curves/format";
import type { ScheduleView } from "../schedule/queries";
import { formatTime, GuardedButton, StatusMark, type Tone } from "../ui";
import classes from "./revisions.module.css";
import { changedText, type Standing, standingOf } from "./timeline";

type Head = Model<"RevisionHead">;

interface TimelineProps {
  heads: readonly Head[];
  view: ScheduleView;
  pair: { left: number; right: number } | null;
  /** Why nothing can be restored any more; empty: it can. */
  over: string;
  onPick: (change: { left?: number; right?: number }) => void;
  onRestore: (revision: number) => void;
  onMore?: (() => void) | undefined;
  isLoading: boolean;
}

const TONES: Record<Standing, Tone> = { "in force": "ok", later: "busy", earlier: "idle", overtaken: "warn" };

/** Revisions, newest first, each with what it changed and a choice of two to compare. */
export function Timeline({ heads, view, pair, over, onPick, onRestore, onMore, isLoading }: TimelineProps) {
  return (
    <>
      <ol className={classes.timeline} aria-label="Revisions, newest first">
        {heads.map((head) => (
          <Entry
            key={head.revision}
            head={head}
            view={view}
            pair={pair}
            over={over}
            onPick={onPick}
            onRestore={onRestore}
          />
        ))}
      </ol>
      {onMore && (
        <Button variant="subtle" onClick={onMore} loading={isLoading}>
          Show earlier ones
        </Button>
      )}
    </>
  );
}

type EntryProps = Omit<TimelineProps, "heads" | "onMore" | "isLoading"> & { head: Head };

function Entry({ head, view, pair, over, onPick, onRestore }: EntryProps) {
  const standing = standingOf(head.revision, view.timeline, view.first_free);
  const { local, utc } = formatTime(head.created_at);
  const isShown = pair !== null && (pair.left === head.revision || pair.right === head.revision);
  return (
    <li className={classes.entry} data-shown={isShown || undefined} data-standing={standing}>
      <div className={classes.entryHead}>
        <strong className="lm-num">Revision {head.revision}</strong>
        <StatusMark tone={TONES[standing]} word={standing} />
        <span className="lm-muted lm-num">from step {whole(head.from_step)}</span>
      </div>
      <p className={classes.message}>{head.message}</p>
      <p className={classes.meta}>
        {head.author || "with the run"}, <time title={utc}>{local}</time>
        {head.base !== null && <>; changes {changedText(head.changed)}</>}
      </p>
      <div className={classes.entryActions}>
        {pair !== null && (
          <>
            <Side side="left" head={head} chosen={pair.left} onPick={onPick} />
            <Side side="right" head={head} chosen={pair.right} onPick={onPick} />
          </>
        )}
        {head.revision !== view.revision && (
          <GuardedButton
            needs="publisher"
            reason={over}
            variant="subtle"
            size="compact-xs"
            onClick={() => onRestore(head.revision)}
          >
            Restore
          </GuardedButton>
        )}
      </div>
    </li>
  );
}

interface SideProps {
  side: "left" | "right";
  head: Head;
  chosen: number;
  onPick: (change: { left?: number; right?: number }) => void;
}

function Side({ side, head, chosen, onPick }: SideProps) {
  return (
    <label className={classes.side}>
      <input
        type="radio"
        name={`compare-${side}`}
        checked={chosen === head.revision}
        onChange={() => onPick({ [side]: head.revision })}
        aria-label={`Compare revision ${head.revision} on the ${side}`}
      />
      {side}
    </label>
  );
}
