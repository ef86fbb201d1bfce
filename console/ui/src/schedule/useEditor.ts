import { useEffect, useMemo, useReducer, useState, useSyncExternalStore } from "react";
import type { Limits } from "../curves/edit";
import type { Schedule } from "../curves/schedule";
import { sameSchedule } from "../curves/schedule";
import { leave, stay } from "./leaving";
import { type ScheduleView, saveDraft, scheduleOf } from "./queries";
import { draftOf, type EditorAction, type EditorState, edit, editorOf } from "./state";
import { DraftSync, type SyncState } from "./sync";
import { keepInTab, type Seed } from "./tabCopy";

export interface EditorHandle {
  readonly state: EditorState;
  readonly draft: Schedule;
  /** The draft is another one than the revision that it was made from. */
  readonly isDirty: boolean;
  readonly dispatch: (action: EditorAction) => void;
  readonly sync: DraftSync;
  readonly kept: SyncState;
}

const FAR = 2 ** 40;

/** A draft that is edited here and kept in the tab and on the server. `canKeep`: the person may write drafts. */
export function useEditor(
  run: string,
  author: string,
  view: ScheduleView,
  seed: Seed & { baseSchedule: Schedule },
  firstFree: number,
  canKeep: boolean,
): EditorHandle {
  const limits = useMemo((): Limits => ({ firstFree, lastStep: FAR }), [firstFree]);
  const [state, dispatch] = useReducer(edit, undefined, () =>
    editorOf(seed.draft?.base ?? view.revision, seed.baseSchedule, limits, seed.draft?.schedule),
  );
  const sync = useDraftSync(run, author, seed);
  const draft = draftOf(state);
  const isDirty = useMemo(() => !sameSchedule(draft, state.baseSchedule), [draft, state.baseSchedule]);
  useEffect(() => dispatch({ type: "limits", limits }), [limits]);
  useEffect(() => {
    if (canKeep) sync.want(state.base, isDirty ? draft : null);
  }, [sync, draft, isDirty, state.base, canKeep]);
  useEffect(() => {
    if (!isDirty && view.revision !== state.base) {
      const schedule = scheduleOf(view);
      dispatch({ type: "load", schedule, base: view.revision, baseSchedule: schedule });
    }
  }, [view, isDirty, state.base]);
  const kept = useSyncExternalStore(sync.subscribe, sync.snapshot);
  return { state, draft, isDirty, dispatch, sync, kept };
}

function useDraftSync(run: string, author: string, seed: Seed): DraftSync {
  const [sync] = useState(() => {
    const ports = {
      save: (draft: { base: number; schedule: Schedule | null }, version: number) =>
        saveDraft(run, author, draft, version),
      keep: (draft: Parameters<typeof keepInTab>[2]) => keepInTab(run, author, draft),
      later: (task: () => void, delay_ms: number) => {
        const timer = setTimeout(task, delay_ms);
        return () => clearTimeout(timer);
      },
    };
    return new DraftSync(ports, seed.version, seed.isUnsaved ? null : seed.draft, seed.isElsewhere);
  });
  useEffect(() => {
    const hide = () => void sync.flush();
    stay(run, author, sync);
    window.addEventListener("pagehide", hide);
    return () => {
      window.removeEventListener("pagehide", hide);
      leave(run, author, sync);
    };
  }, [run, author, sync]);
  return sync;
}
