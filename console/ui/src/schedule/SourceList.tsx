import { ActionIcon, TextInput } from "@mantine/core";
import { useState } from "react";
import { percent } from "../curves/format";
import { weightField } from "../curves/schedule";
import { Hint, Icon } from "../ui";
import type { Look } from "./drawing";
import { type SourceRow, windowOf } from "./rows";
import classes from "./schedule.module.css";

interface SourceListProps {
  rows: readonly SourceRow[];
  count: number;
  active: string;
  drawn: ReadonlySet<string>;
  looks: (field: string) => Look;
  locked: ReadonlySet<string>;
  query: string;
  onQuery: (query: string) => void;
  onActivate: (field: string) => void;
  onLock: (source: string) => void;
}

const ROW_PX = 32;
const HEIGHT_PX = 512;

/** All sources of the run: hundreds are no trouble, since only what is in view is drawn. */
export function SourceList(props: SourceListProps) {
  const { rows, count, query } = props;
  const [scrollTop, setScrollTop] = useState(0);
  const height = Math.min(HEIGHT_PX, Math.max(ROW_PX, rows.length * ROW_PX));
  const [first, last] = windowOf(rows.length, ROW_PX, scrollTop, height);
  return (
    <div className={classes.list}>
      <TextInput
        data-search
        aria-label="Search sources"
        placeholder={`Search ${count} sources`}
        leftSection={<Icon name="search" size={14} />}
        value={query}
        onChange={(event) => props.onQuery(event.currentTarget.value)}
      />
      <div className={classes.listHead} aria-hidden="true">
        <span>Source</span>
        <span>Share</span>
      </div>
      <ul
        className={classes.listBox}
        style={{ height }}
        onScroll={(event) => setScrollTop(event.currentTarget.scrollTop)}
        aria-label="Sources"
      >
        <li style={{ height: first * ROW_PX }} aria-hidden="true" />
        {rows.slice(first, last).map((row) => (
          <Row key={row.source} {...props} row={row} />
        ))}
        <li style={{ height: (rows.length - last) * ROW_PX }} aria-hidden="true" />
      </ul>
      {rows.length === 0 && <p className="lm-muted">No source's name holds “{query}”.</p>}
    </div>
  );
}

function Row({ row, active, drawn, looks, locked, onActivate, onLock }: SourceListProps & { row: SourceRow }) {
  const field = weightField(row.source);
  const isLocked = locked.has(row.source);
  const look = looks(field);
  return (
    <li className={classes.row} data-active={field === active || undefined} style={{ height: ROW_PX }}>
      <button
        type="button"
        className={classes.rowButton}
        aria-pressed={field === active}
        onClick={() => onActivate(field)}
        title={row.source}
      >
        <svg width={18} height={10} aria-hidden="true">
          <line
            x1={1}
            x2={17}
            y1={5}
            y2={5}
            stroke={look.colour}
            strokeWidth={drawn.has(field) ? 3 : 1.2}
            strokeDasharray={look.dash}
          />
        </svg>
        <span className={classes.rowName} data-retired={row.isRetired || undefined}>
          {row.source}
        </span>
        {row.isRetired && <span className={classes.tag}>retired</span>}
        {row.isChanged && <span className={classes.tagChanged}>edited</span>}
        <span className={classes.rowShare}>{shareText(row)}</span>
      </button>
      <Hint label={isLocked ? "Locked: neither edited nor renormalised. Let go" : "Lock: keep its curve as it is"}>
        <ActionIcon
          variant="subtle"
          color="gray"
          size={24}
          aria-label={`Lock ${row.source}`}
          aria-pressed={isLocked}
          data-locked={isLocked || undefined}
          className={classes.lock}
          onClick={() => onLock(row.source)}
        >
          <LockIcon isLocked={isLocked} />
        </ActionIcon>
      </Hint>
    </li>
  );
}

function shareText(row: SourceRow): string {
  if (!row.hasWeight) return "no weight";
  const [before, now] = [percent(row.before), percent(row.share)];
  return before === now ? now : `${before} → ${now}`;
}

export function LockIcon({ isLocked }: { isLocked: boolean }) {
  return (
    <svg
      width={14}
      height={14}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth={1.5}
      aria-hidden="true"
    >
      <rect x="3" y="7" width="10" height="7" rx="1.2" fill={isLocked ? "currentColor" : "none"} />
      <path d={isLocked ? "M5 7V5a3 3 0 0 1 6 0v2" : "M5 7V4.500a3 3 0 0 1 5.800-1"} />
    </svg>
  );
}
