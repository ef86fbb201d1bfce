import { formatAge, formatTime } from "./format";

/** A moment: local time, with UTC below it. */
export function Time({ at }: { at: number | null }) {
  if (at === null) return <span className="lm-muted">not kept</span>;
  const { local, utc } = formatTime(at);
  return (
    <time dateTime={new Date(at * 1000).toISOString()} className="lm-num lm-nowrap">
      {local}
      <br />
      <span className="lm-muted">{utc}</span>
    </time>
  );
}

/** A moment as an age, with both times on hover and for readers. */
export function Ago({ at, now = Date.now() }: { at: number | null; now?: number }) {
  if (at === null) return <span className="lm-muted">age not kept</span>;
  const { local, utc } = formatTime(at);
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={`${local}\n${utc}`} className="lm-num lm-nowrap">
      {formatAge(Math.max(0, now / 1000 - at))}
    </time>
  );
}
