import { ActionIcon, Button } from "@mantine/core";
import { useMemo } from "react";
import type { Knot } from "../curves/curve";
import { percent, weight, whole } from "../curves/format";
import { shareAt, sourceOf } from "../curves/schedule";
import { Hint, Panel, Segmented } from "../ui";
import { Canvas } from "./Canvas";
import { lookOf } from "./drawing";
import { MixturePreview, MixtureTable } from "./MixturePreview";
import { type ScheduleView, useRevisions } from "./queries";
import classes from "./schedule.module.css";
import type { EditorHandle } from "./useEditor";
import { CANVAS_PX, type Shown } from "./useView";
import { nearSpan, panned, type Span, zoomed } from "./view";

interface BoardProps {
  run: string;
  view: ScheduleView;
  editor: EditorHandle;
  shown: Shown;
  active: string;
  now: number | null;
  canEdit: boolean;
  width: number;
  onActivate: (field: string) => void;
}

const PREVIEW_PX = 168;
const MOST_STRETCHES = 12;
const PANEL_PADDING_PX = 34;

/** The picture: curves with their knots, and beneath them the mixture that comes out. */
export function Board(props: BoardProps) {
  const { run, view, editor, shown, active, now, canEdit, onActivate } = props;
  const { state, draft, dispatch } = editor;
  const source = sourceOf(active);
  const fields = shown.fieldsFor(active);
  const timeline = useMemo(() => view.timeline.slice(-MOST_STRETCHES), [view.timeline]);
  const revisions = useRevisions(
    run,
    timeline.map((each) => each.revision),
  );
  const looks = new Map([...fields, active].map((field) => [field, lookOf(field, view.sources)]));
  const width = Math.max(240, props.width - PANEL_PADDING_PX);
  const marks = view.scheduled.map((each) => ({
    at: each.at_step,
    label: each.state === "suspended" ? `suspended: ${each.message}` : `waits: ${each.message}`,
    isBad: each.state === "suspended",
  }));
  const valueText = (field: string, knot: Knot) => {
    const name = sourceOf(field);
    if (name === null) return `step ${whole(knot.at)}, ${whole(knot.value)}`;
    return `step ${whole(knot.at)}, ${name} ${percent(shareAt(draft, name, knot.at))}, weight ${weight(knot.value)}`;
  };
  return (
    <Panel title={source === null ? "Size of a step" : "Mixture"} aside={<Tools {...props} />}>
      <Canvas
        width={width}
        height={CANVAS_PX}
        draft={draft}
        active={active}
        fields={fields}
        looks={looks}
        span={shown.span}
        top={shown.topFor(active)}
        ticks={shown.ticks}
        timeline={timeline}
        revisions={revisions}
        marks={marks}
        now={now}
        at={shown.at}
        limits={state.limits}
        grid={shown.gridFor(active)}
        selected={state.selected}
        canEdit={canEdit}
        valueText={valueText}
        dispatch={dispatch}
        onActivate={onActivate}
        onAt={(at) => shown.setSearch({ at })}
      />
      <p className={classes.keysHint}>
        Drag a knot, or use its keys: arrows, Shift for ten, Alt for fine, <kbd>[</kbd> <kbd>]</kbd> neighbours,{" "}
        <kbd>s</kbd> shape, Delete. Click an empty place to add one. Dashed: revision {view.revision}, in force.
      </p>
      {source !== null && <Stacked {...props} looks={looks} fields={fields} width={width} />}
    </Panel>
  );
}

function Stacked({
  editor,
  shown,
  looks,
  fields,
  width,
  active,
}: BoardProps & { looks: ReadonlyMap<string, ReturnType<typeof lookOf>>; fields: readonly string[] }) {
  const names = fields.map((field) => sourceOf(field)).filter((name) => name !== null);
  const isTable = shown.search.table === true;
  return (
    <div>
      <div className={classes.stackHead}>
        <h3 className={classes.dialogTitle}>Shares that come out</h3>
        <Segmented
          aria-label="Shares: chart or table"
          value={isTable ? "table" : "chart"}
          onChange={(value) => shown.setSearch({ table: value === "table" ? true : undefined })}
          data={[
            { value: "chart", label: "Chart" },
            { value: "table", label: "Table" },
          ]}
        />
      </div>
      {isTable ? (
        <div className={classes.knotBox}>
          <MixtureTable draft={editor.draft} names={names} steps={shown.ticks.map((tick) => tick.step)} />
        </div>
      ) : (
        <MixturePreview
          width={width}
          height={PREVIEW_PX}
          draft={editor.draft}
          names={names}
          looks={looks}
          span={shown.span}
          steps_X={shown.steps_X}
          ticks={shown.ticks}
          firstFree={editor.state.limits.firstFree}
          active={active}
        />
      )}
    </div>
  );
}

function Tools({ shown, active, editor, onActivate }: BoardProps) {
  const { state, dispatch } = editor;
  const show = (span: Span) => shown.setSearch({ from: span.from, to: span.to });
  const { span, whole: all, at } = shown;
  const kind = sourceOf(active) === null ? active : "mixture";
  const mixture = shown.largest ?? "";
  return (
    <div className={classes.tools}>
      <Segmented
        aria-label="What is edited"
        value={kind}
        onChange={(value) => onActivate(value === "mixture" ? `weights.${mixture}` : value)}
        data={[
          { value: "mixture", label: "Mixture" },
          { value: "microbatches", label: "G" },
          { value: "seq_len", label: "C" },
        ]}
      />
      <Segmented
        aria-label="Axis"
        value={shown.search.x ?? "steps"}
        onChange={(value) => shown.setSearch({ x: value === "tokens" ? "tokens" : undefined })}
        data={[
          { value: "steps", label: "Steps" },
          { value: "tokens", label: "Tokens" },
        ]}
      />
      <span className={classes.toolGroup}>
        <Tool label="Earlier" text="◀" onClick={() => show(panned(span, -0.25, all))} />
        <Tool label="Zoom out" text="−" onClick={() => show(zoomed(span, 2, at, all))} />
        <Tool label="Zoom in" text="+" onClick={() => show(zoomed(span, 0.5, at, all))} />
        <Tool label="Later" text="▶" onClick={() => show(panned(span, 0.25, all))} />
        <Button
          variant="default"
          size="compact-xs"
          h={24}
          onClick={() => shown.setSearch({ from: undefined, to: undefined })}
        >
          Whole run
        </Button>
        <Button variant="default" size="compact-xs" h={24} onClick={() => show(nearSpan(all, state.limits.firstFree))}>
          From now
        </Button>
      </span>
      <span className={classes.toolGroup}>
        <Button
          variant="default"
          size="compact-xs"
          h={24}
          disabled={state.history.past.length === 0}
          onClick={() => dispatch({ type: "undo" })}
        >
          Undo
        </Button>
        <Button
          variant="default"
          size="compact-xs"
          h={24}
          disabled={state.history.future.length === 0}
          onClick={() => dispatch({ type: "redo" })}
        >
          Redo
        </Button>
      </span>
    </div>
  );
}

function Tool({ label, text, onClick }: { label: string; text: string; onClick: () => void }) {
  return (
    <Hint label={label}>
      <ActionIcon variant="default" size={24} aria-label={label} onClick={onClick}>
        <span aria-hidden="true">{text}</span>
      </ActionIcon>
    </Hint>
  );
}
