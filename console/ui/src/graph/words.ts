import { formatCount, formatShare, type Tone } from "../ui";
import type { Stage, StageStatus } from "./model";

/** What a status is called and looks like. */
export const MARKS: Record<StageStatus, { tone: Tone; word: string }> = {
  failing: { tone: "bad", word: "failing" },
  silent: { tone: "bad", word: "silent" },
  slow: { tone: "warn", word: "slow" },
  blocked: { tone: "warn", word: "held up" },
  busy: { tone: "busy", word: "busy" },
  leaving: { tone: "idle", word: "leaving" },
  flowing: { tone: "ok", word: "flowing" },
  idle: { tone: "idle", word: "idle" },
  unknown: { tone: "unknown", word: "no data" },
};

/** Tokens a second for people; null where it is not known. */
export const rateOf = (stage: { rate: number | null }): string | null =>
  stage.rate === null ? null : `${formatCount(stage.rate)} tok/s`;

export const shareOf = (value: number | null): string | null => (value === null ? null : formatShare(value));

/** A stage in one line, for those who hear it. */
export function line(stage: Stage, status: StageStatus): string {
  const parts = [
    `${stage.label}: ${MARKS[status].word}`,
    stage.queue_fill !== null && `queue ${formatShare(stage.queue_fill)} full`,
    stage.busy !== null && `busy ${formatShare(stage.busy)}`,
    stage.blocked !== null && `held up ${formatShare(stage.blocked)}`,
    stage.rate !== null && rateOf(stage),
    stage.errors > 0 && `${stage.errors} errors`,
  ];
  return parts.filter(Boolean).join(", ");
}
