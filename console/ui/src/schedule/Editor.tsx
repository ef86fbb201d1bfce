import { useElementSize, useHotkeys } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { useEvents } from "../api/events";
import { useRefusal, useSession } from "../api/session";
import { held } from "../curves/edit";
import { changedFields, type Schedule } from "../curves/schedule";
import { Page, Panel } from "../ui";
import { Banners } from "./Banners";
import { Board } from "./Board";
import { ConflictDialog } from "./ConflictDialog";
import { lookOf } from "./drawing";
import { overReason } from "./ending";
import { FieldPanel } from "./FieldPanel";
import { HeadActions, HeadLead } from "./Head";
import type { Outcome } from "./publishing";
import { type DraftView, readDraft, readRevision, type ScheduleView, scheduleOf, useRefresh } from "./queries";
import { ReviewDialog } from "./ReviewDialog";
import { fieldOf, selOf, sourceRows } from "./rows";
import { ScheduledPanel } from "./ScheduledPanel";
import { SourceList } from "./SourceList";
import classes from "./schedule.module.css";
import type { Seed } from "./tabCopy";
import { useEditor } from "./useEditor";
import { useView } from "./useView";

interface EditorProps {
  run: string;
  view: ScheduleView;
  seed: Seed & { baseSchedule: Schedule };
}

type Open = "" | "review" | "hold" | "conflict";

export function Editor({ run, view, seed }: EditorProps) {
  const { name: author } = useSession();
  const refusal = useRefusal("editor");
  const live = useLiveSteps(run, view);
  const editor = useEditor(run, author, view, seed, live.firstFree, refusal === "");
  const { state, draft, dispatch } = editor;
  const [open, setOpen] = useState<Open>("");
  const [note, setNote] = useState("");
  const newest = useMemo(() => scheduleOf(view), [view]);
  const changed = useMemo(() => changedFields(state.baseSchedule, draft), [state.baseSchedule, draft]);
  const { ref, width } = useElementSize();
  const shown = useView(view, newest, draft, live.firstFree, Math.max(240, width));
  const [first] = useState(shown.largest); // a revision that makes another source the largest must not change what is edited
  const active = fieldOf(shown.search.sel, view.sources, first);
  const activate = (field: string) => shown.setSearch({ sel: selOf(field) });
  const rows = useMemo(
    () => sourceRows(view.sources, newest, draft, new Set(changed), shown.at, shown.search.q ?? ""),
    [view.sources, newest, draft, changed, shown.at, shown.search.q],
  );
  const after = useAfter(run, author, editor, setNote, setOpen);
  useHotkeys([
    ["mod+Z", () => dispatch({ type: "undo" })],
    ["mod+shift+Z", () => dispatch({ type: "redo" })],
    ["mod+Y", () => dispatch({ type: "redo" })],
  ]);
  const begin = (found: { base: number; schedule: Schedule; baseSchedule: Schedule }) =>
    dispatch({ type: "load", ...found });
  const over = overReason(view.end_step ?? view.until_steps, live.firstFree);
  const dialog = { run, view, firstFree: live.firstFree, span: shown.span };
  return (
    <Page
      title="Schedule"
      run={run}
      isWide
      lead={
        <HeadLead
          view={view}
          firstFree={live.firstFree}
          kept={editor.kept}
          isDirty={editor.isDirty}
          numChanged={changed.length}
          over={over}
        />
      }
      actions={
        <HeadActions
          editor={editor}
          isStale={state.base !== view.revision}
          over={over}
          onHold={() => setOpen("hold")}
          onReview={() => setOpen(state.base === view.revision ? "review" : "conflict")}
        />
      }
    >
      <Banners
        run={run}
        author={author}
        view={view}
        editor={editor}
        note={note}
        refusal={refusal}
        onRebase={() => setOpen("conflict")}
        onClear={() => setNote("")}
      />
      <div className={classes.layout}>
        <Panel title="Sources" className={classes.side}>
          <SourceList
            rows={rows}
            count={view.sources.length}
            active={active}
            drawn={new Set(shown.fieldsFor(active))}
            looks={(field) => lookOf(field, view.sources)}
            locked={state.locked}
            query={shown.search.q ?? ""}
            onQuery={(q) => shown.setSearch({ q: q || undefined })}
            onActivate={activate}
            onLock={(source) => dispatch({ type: "lock", source })}
          />
        </Panel>
        <div className={classes.main} ref={ref}>
          {width > 0 && ( // else it is drawn twice
            <Board
              run={run}
              view={view}
              editor={editor}
              shown={shown}
              active={active}
              now={live.acknowledged}
              canEdit={refusal === ""}
              onActivate={activate}
              width={width}
            />
          )}
          <Panel title={`Knots of ${selOf(active)}`}>
            <FieldPanel
              field={active}
              draft={draft}
              limits={state.limits}
              grid={shown.gridFor(active)}
              at={shown.at}
              selected={state.selected}
              isLocked={state.locked.has(selOf(active))}
              refusal={refusal}
              dispatch={dispatch}
            />
          </Panel>
          <Panel title="Scheduled publishes">
            <ScheduledPanel
              run={run}
              scheduled={view.scheduled}
              firstFree={view.planned + 1}
              onOpen={(found) => void after.openScheduled(found.base, scheduleOf(found), begin)}
            />
          </Panel>
        </div>
      </div>
      {open === "review" && (
        <ReviewDialog
          {...dialog}
          title="Review and publish"
          base={state.base}
          before={state.baseSchedule}
          after={draft}
          change={{ is: "publish", schedule: draft }}
          onClose={() => setOpen("")}
          onOutcome={after.published}
          during={(task) => editor.sync.handOver(task)}
        />
      )}
      {open === "hold" && (
        <ReviewDialog
          {...dialog}
          title="Hold the mixture as it is"
          base={view.revision}
          before={newest}
          after={held(newest, live.firstFree)}
          change={{ is: "hold" }}
          message="Hold the mixture"
          onClose={() => setOpen("")}
          onOutcome={after.acted}
        />
      )}
      {open === "conflict" && (
        <ConflictDialog
          run={run}
          author={author}
          base={state.base}
          newest={view.revision}
          baseSchedule={state.baseSchedule}
          mine={draft}
          span={shown.span}
          during={(task) => editor.sync.handOver(task)}
          onRebased={(rebased: DraftView) => after.rebased(rebased, newest)}
          onClose={() => setOpen("")}
        />
      )}
    </Page>
  );
}

/** The first step that can still change, and the last that all ranks have acknowledged, as they move on. */
function useLiveSteps(run: string, view: ScheduleView): { firstFree: number; acknowledged: number | null } {
  const [live, setLive] = useState<{ bound: number; acknowledged: number } | null>(null);
  useEvents<{ run: string; stream: string; bound: number; acknowledged: number }>("progress", (event) => {
    if (event.run === run && event.stream === "train") setLive(event);
  });
  return { firstFree: Math.max(view.first_free, live?.bound ?? 0), acknowledged: live?.acknowledged ?? null };
}

/** What happens after a publish, a rebase, or when a scheduled publish is opened. */
function useAfter(
  run: string,
  author: string,
  editor: ReturnType<typeof useEditor>,
  setNote: (text: string) => void,
  setOpen: (open: Open) => void,
) {
  const refresh = useRefresh(run);
  const { sync, dispatch, state } = editor;
  const told = (outcome: Outcome): string => {
    if (outcome.is === "revision") return `Revision ${outcome.revision} is in force from step ${outcome.fromStep} on.`;
    return outcome.is === "scheduled" ? `Scheduled for step ${outcome.atStep}.` : "";
  };
  const acted = (outcome: Outcome) => {
    if (outcome.is === "moved") setOpen("");
    if (outcome.is === "moved") setNote("The schedule changed meanwhile. Look at it, then try again.");
    if (outcome.is === "revision" || outcome.is === "scheduled") {
      setNote(told(outcome));
      setOpen("");
    }
    void refresh();
  };
  const published = async (outcome: Outcome) => {
    if (outcome.is === "revision" || outcome.is === "scheduled") {
      sync.adopt(0);
      dispatch({ type: "load", schedule: state.baseSchedule, base: state.base, baseSchedule: state.baseSchedule });
      acted(outcome);
      return;
    }
    const kept = await readDraft(run, author).catch(() => null);
    if (kept) sync.adopt(kept.version, { base: kept.base, schedule: editor.draft });
    await refresh();
    if (outcome.is === "moved") setOpen("conflict");
  };
  const rebased = (draft: DraftView, newest: Schedule) => {
    const schedule = scheduleOf(draft);
    sync.adopt(draft.version, { base: draft.base, schedule });
    dispatch({ type: "load", schedule, base: draft.base, baseSchedule: newest });
    setOpen("");
    setNote(`Your draft is on revision ${draft.base} now. Review it, then publish.`);
  };
  const openScheduled = async (
    base: number,
    schedule: Schedule,
    begin: (found: { base: number; schedule: Schedule; baseSchedule: Schedule }) => void,
  ) => {
    begin({ base, schedule, baseSchedule: scheduleOf(await readRevision(run, base)) });
    setNote("Opened as your draft. Publish it anew; then cancel the one that waits.");
  };
  return { published, acted, rebased, openScheduled };
}
