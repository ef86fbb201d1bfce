import { ActionIcon, Skeleton } from "@mantine/core";
import { useMemo } from "react";
import type { Knot } from "../curves/curve";
import { changedKnots, diffText, type KnotChange } from "../curves/diff";
import { weight, whole } from "../curves/format";
import { fieldLabel, type Schedule } from "../curves/schedule";
import { Overlay } from "../schedule/Overlay";
import { type ScheduleView, useRevisions } from "../schedule/queries";
import { wholeSpan } from "../schedule/view";
import { DataTable, Panel } from "../ui";
import classes from "./revisions.module.css";

interface ComparisonProps {
  run: string;
  view: ScheduleView;
  left: number;
  right: number;
  onPick: (change: { left?: number; right?: number }) => void;
}

/** Two revisions: in words, as curves over each other, and knot by knot. */
export function Comparison({ run, view, left, right, onPick }: ComparisonProps) {
  const found = useRevisions(run, [left, right]);
  const [before, after] = [found.get(left), found.get(right)];
  const swap = (
    <ActionIcon
      variant="default"
      size={24}
      aria-label="Swap left and right"
      onClick={() => onPick({ left: right, right: left })}
    >
      <span aria-hidden="true">⇄</span>
    </ActionIcon>
  );
  return (
    <Panel title={`Revision ${left} → revision ${right}`} aside={swap}>
      {before && after ? <Compared {...{ view, left, right, before, after }} /> : <Skeleton height={320} />}
    </Panel>
  );
}

type ComparedProps = Omit<ComparisonProps, "run" | "onPick"> & { before: Schedule; after: Schedule };

function Compared({ view, left, right, before, after }: ComparedProps) {
  const fromStep = view.timeline.find((each) => each.revision === right)?.from_step ?? 0;
  const span = useMemo(
    () => wholeSpan([before, after], view.first_free, view.end_step ?? view.until_steps),
    [before, after, view],
  );
  const lines = useMemo(() => diffText(before, after, fromStep), [before, after, fromStep]);
  const rows = useMemo(() => changedKnots(before, after), [before, after]);
  if (left === right) return <p className="lm-muted">Choose another revision on one side.</p>;
  if (lines.length === 0) return <p className="lm-muted">They are the same.</p>;
  return (
    <div className={classes.compared}>
      <ul className={classes.summary} aria-label="Changes">
        {lines.slice(0, 40).map((line) => (
          <li key={line}>{line}</li>
        ))}
        {lines.length > 40 && <li>and {lines.length - 40} more, in the table</li>}
      </ul>
      <Overlay
        before={before}
        after={after}
        fromStep={fromStep}
        span={span}
        beforeName={`revision ${left}`}
        afterName={`revision ${right}`}
      />
      <DataTable<KnotChange>
        caption="Knots that differ"
        maxHeight="420px"
        rows={rows}
        rowKey={(row) => `${row.field} ${row.at}`}
        empty={<p className="lm-muted">No knot differs: a source was retired or taken up again.</p>}
        columns={[
          { key: "field", title: "Curve", cell: (row) => fieldLabel(row.field) },
          { key: "at", title: "Step", isNumber: true, cell: (row) => whole(row.at) },
          { key: "before", title: `Revision ${left}`, cell: (row) => knotText(row.before) },
          { key: "after", title: `Revision ${right}`, cell: (row) => knotText(row.after) },
        ]}
      />
    </div>
  );
}

function knotText(knot: Knot | null): string {
  return knot === null ? "no knot" : `${weight(knot.value)}, then ${knot.shape}`;
}
