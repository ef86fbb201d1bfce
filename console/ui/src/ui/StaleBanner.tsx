import { useEffect, useState } from "react";
import { useLive } from "../api/events";
import { formatSeconds } from "./format";
import { Icon } from "./icons";
import classes from "./ui.module.css";

const WORDS: Record<string, string> = {
  stale: "The planner is silent: numbers may be old.",
  offline: "The planner cannot be reached. Trying again; nothing you typed is lost.",
  refused: "This session may not listen to live numbers any more. Sign in again.",
};

/** Says that numbers are old, and how old; takes no room while they are not. */
export function StaleBanner() {
  const { status, lastBeat } = useLive();
  const word = WORDS[status];
  const age = useAge(lastBeat, Boolean(word));
  if (!word) return null;
  return (
    <div className={classes.stale} role="status">
      <Icon name="warn" />
      <span>{word}</span>
      {lastBeat > 0 && <span className="lm-num">Last heard {age} ago.</span>}
    </div>
  );
}

/** The time since `since` (ms), read each second while it matters. */
export function useAge(since: number, isRunning = true): string {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!isRunning) return;
    const ticker = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(ticker);
  }, [isRunning]);
  return formatSeconds(Math.max(0, Math.round((now - since) / 1000)));
}
