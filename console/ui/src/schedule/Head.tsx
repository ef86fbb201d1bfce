import { Button } from "@mantine/core";
import { whole } from "../curves/format";
import { GuardedButton, StatusMark, type Tone } from "../ui";
import type { ScheduleView } from "./queries";
import type { SyncState } from "./sync";
import type { EditorHandle } from "./useEditor";

interface HeadLeadProps {
  view: ScheduleView;
  firstFree: number;
  kept: SyncState;
  isDirty: boolean;
  numChanged: number;
  /** Why nothing can change any more; empty: it can. */
  over: string;
}

/** What is in force, from where it can change, and where the draft is. */
export function HeadLead({ view, firstFree, kept, isDirty, numChanged, over }: HeadLeadProps) {
  return (
    <>
      <span className="lm-num">Revision {view.revision} is in force</span>
      <span className="lm-num">{over || `changes begin at step ${whole(firstFree)} or later`}</span>
      {isDirty && <span className="lm-num">{numChanged === 1 ? "1 curve edited" : `${numChanged} curves edited`}</span>}
      {isDirty && <KeptMark kept={kept} />}
    </>
  );
}

const WORDS: Record<SyncState["status"], [Tone, string]> = {
  none: ["idle", "draft only here"],
  kept: ["ok", "draft kept"],
  waiting: ["busy", "keeping the draft"],
  saving: ["busy", "keeping the draft"],
  offline: ["warn", "draft only in this tab"],
  elsewhere: ["bad", "draft changed elsewhere"],
  refused: ["warn", "draft only in this tab"],
};

function KeptMark({ kept }: { kept: SyncState }) {
  const [tone, word] = WORDS[kept.status];
  return <StatusMark tone={tone} word={word} title={kept.reason || `version ${kept.version} on the planner`} />;
}

interface HeadActionsProps {
  editor: EditorHandle;
  isStale: boolean;
  over: string;
  onHold: () => void;
  onReview: () => void;
}

export function HeadActions({ editor, isStale, over, onHold, onReview }: HeadActionsProps) {
  const { isDirty, dispatch, state } = editor;
  return (
    <>
      {isDirty && (
        <Button variant="subtle" onClick={() => dispatch({ type: "replace", schedule: state.baseSchedule })}>
          Discard draft
        </Button>
      )}
      <GuardedButton needs="publisher" variant="default" reason={over} onClick={onHold}>
        Hold current mixture now
      </GuardedButton>
      <GuardedButton needs="publisher" reason={over || (isDirty ? "" : "Nothing is edited")} onClick={onReview}>
        {isDirty && isStale ? "Rebase and publish" : "Review and publish"}
      </GuardedButton>
    </>
  );
}
