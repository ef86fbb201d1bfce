import { Button } from "@mantine/core";
import { useState } from "react";
import { Icon, ProblemNotice } from "../ui";
import { readDraft, readRevision, type ScheduleView, scheduleOf } from "./queries";
import classes from "./schedule.module.css";
import type { EditorHandle } from "./useEditor";

interface BannersProps {
  run: string;
  author: string;
  view: ScheduleView;
  editor: EditorHandle;
  note: string;
  refusal: string;
  onRebase: () => void;
  onClear: () => void;
}

/** What a person has to know before going on; nothing of it takes the draft away. */
export function Banners({ run, author, view, editor, note, refusal, onRebase, onClear }: BannersProps) {
  const { state, isDirty, kept } = editor;
  return (
    <>
      <div role="status" className={classes.note} data-shown={note !== "" || undefined}>
        {note && (
          <>
            <Icon name="ok" /> <span>{note}</span>
            <Button variant="subtle" size="compact-xs" onClick={onClear}>
              Close
            </Button>
          </>
        )}
      </div>
      {refusal && (
        <div className={classes.banner}>
          <Icon name="idle" /> <span>You look at the schedule; you cannot edit it. {refusal}.</span>
        </div>
      )}
      {isDirty && state.base !== view.revision && (
        <div className={classes.banner} data-tone="warn" role="status">
          <Icon name="warn" />
          <span>
            Revision {view.revision} came since your draft was made from revision {state.base}. Your draft is kept.
          </span>
          <Button variant="default" onClick={onRebase}>
            Compare and rebase
          </Button>
        </div>
      )}
      {kept.status === "elsewhere" && <Elsewhere run={run} author={author} editor={editor} />}
      {kept.status === "refused" && (
        <ProblemNotice
          title="The draft is kept in this tab only."
          error={new Error(kept.reason)}
          onRetry={() => editor.sync.overwrite()}
        />
      )}
    </>
  );
}

/** The same person edits in two tabs: one of the two drafts stays, as they say. */
function Elsewhere({ run, author, editor }: { run: string; author: string; editor: EditorHandle }) {
  const [problem, setProblem] = useState<unknown>(null);
  const take = async () => {
    try {
      const draft = await readDraft(run, author);
      if (draft === null) {
        editor.sync.overwrite();
        return;
      }
      const schedule = scheduleOf(draft);
      const baseSchedule = scheduleOf(await readRevision(run, draft.base));
      editor.sync.adopt(draft.version, { base: draft.base, schedule });
      editor.dispatch({ type: "load", schedule, base: draft.base, baseSchedule });
    } catch (error) {
      setProblem(error);
    }
  };
  return (
    <div className={classes.banner} data-tone="bad" role="alert">
      <Icon name="warn" />
      <span>Your draft was changed in another tab or browser since. This tab keeps what you see until you choose.</span>
      <Button variant="default" onClick={() => editor.sync.overwrite()}>
        Keep this one
      </Button>
      <Button variant="default" onClick={() => void take()}>
        Take the other one
      </Button>
      {problem !== null && <ProblemNotice error={problem} />}
    </div>
  );
}
