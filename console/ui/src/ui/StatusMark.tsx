import { Icon } from "./icons";
import classes from "./ui.module.css";

/** What a state means. Icon, word and colour go together: none of them alone. */
export type Tone = "ok" | "busy" | "warn" | "bad" | "idle" | "unknown";

export function StatusMark({ tone, word, title }: { tone: Tone; word: string; title?: string }) {
  return (
    <span className={classes.mark} data-tone={tone} title={title}>
      <Icon name={tone} size={13} />
      {word}
    </span>
  );
}

const TONES: Record<string, Tone> = {
  running: "ok",
  open: "ok",
  healthy: "ok",
  ok: "ok",
  activated: "ok",
  waiting: "warn",
  paused: "warn",
  suspended: "warn",
  slow: "warn",
  behind: "warn",
  silent: "bad",
  failed: "bad",
  error: "bad",
  failing: "bad",
  done: "idle",
  ended: "idle",
  closed: "idle",
  retired: "idle",
  left: "idle",
  cancelled: "idle",
  exhausted: "idle",
  pending: "busy",
};

/** The tone of a state by its name; states that are not known are told by their word alone. */
export function toneOf(state: string): Tone {
  return TONES[state] ?? "unknown";
}
