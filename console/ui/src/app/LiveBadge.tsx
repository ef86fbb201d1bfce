import { Button } from "@mantine/core";
import { feed, useLive } from "../api/events";
import type { FeedStatus } from "../api/feed";
import { Hint, useAge } from "../ui";
import { Icon } from "../ui/icons";
import classes from "./app.module.css";

const MARKS: Record<FeedStatus, { word: string; icon: string; tone: string; help: string }> = {
  connecting: {
    word: "Connecting",
    icon: "unknown",
    tone: "idle",
    help: "Waiting for the planner's first word.",
  },
  live: { word: "Live", icon: "ok", tone: "ok", help: "Changes come as they happen. Press to pause." },
  stale: { word: "Stale", icon: "warn", tone: "warn", help: "Three beats were missed. Press to pause." },
  offline: { word: "Offline", icon: "bad", tone: "bad", help: "Cut off; trying again. Press to pause." },
  paused: { word: "Paused", icon: "pause", tone: "idle", help: "What you see stands still. Press to go on." },
  refused: {
    word: "Signed out",
    icon: "bad",
    tone: "bad",
    help: "The planner does not let this session listen.",
  },
};

/** Whether the page follows the planner; pressing it pauses and goes on. */
export function LiveBadge() {
  const { status, lastBeat } = useLive();
  const mark = MARKS[status];
  const age = useAge(lastBeat, status === "stale" || status === "offline");
  const isOld = (status === "stale" || status === "offline") && lastBeat > 0;
  return (
    <Hint label={mark.help}>
      <Button
        variant="subtle"
        className={classes.live}
        data-tone={mark.tone}
        data-live={status}
        aria-pressed={status === "paused"}
        onClick={() => feed.setPaused(status !== "paused")}
        leftSection={<Icon name={mark.icon} size={14} />}
      >
        {mark.word}
        {isOld && <span className="lm-num">&nbsp;{age}</span>}
        <span className="lm-sr">, {status === "paused" ? "go on" : "pause"}</span>
      </Button>
    </Hint>
  );
}
