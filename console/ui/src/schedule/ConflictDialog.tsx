import { Button, Modal, Radio } from "@mantine/core";
import { useState } from "react";
import { api, call } from "../api/client";
import { curveText } from "../curves/diff";
import { type MergedField, merge, type Side } from "../curves/merge";
import { curveIn, fieldLabel, isRetired, type Schedule, sourceOf } from "../curves/schedule";
import { GuardedButton, ProblemNotice } from "../ui";
import { pathOf, scalesOf } from "./drawing";
import { type DraftView, scheduleOf, useRevision } from "./queries";
import classes from "./schedule.module.css";
import { curvesOf, type Span, topOf } from "./view";

interface ConflictProps {
  run: string;
  author: string;
  /** The revision that the draft was made from, and the newest one. */
  base: number;
  newest: number;
  baseSchedule: Schedule;
  mine: Schedule;
  span: Span;
  /** Runs the rebase: brings what is edited to the server first, since that is what is merged there. */
  during: (task: () => Promise<void>) => Promise<void>;
  onRebased: (draft: DraftView) => void;
  onClose: () => void;
}

/** Two people edited: base, theirs and mine side by side; what one side alone changed merges by itself. */
export function ConflictDialog(props: ConflictProps) {
  const { run, base, newest, baseSchedule, mine, onClose } = props;
  const theirs = useRevision(run, newest);
  const [choices, setChoices] = useState<Record<string, Side>>({});
  const { rebase, isBusy, problem } = useRebase(props, choices);
  const schedule = theirs.data && scheduleOf(theirs.data);
  const merged = schedule && merge(baseSchedule, mine, schedule, choices);
  const reason = !merged ? "reading the newest revision" : leftText(merged.undecided);
  return (
    <Modal
      opened
      onClose={onClose}
      title={`Revision ${newest} came first`}
      size={980}
      closeButtonProps={{ "aria-label": "Close" }}
    >
      <div className={classes.review}>
        {theirs.data && (
          <p>
            Your draft was made from revision {base}. Since then <strong>{theirs.data.author}</strong> published
            revision {newest}, “{theirs.data.message}”. Your draft is kept, whatever you do here.
          </p>
        )}
        {theirs.error && <ProblemNotice error={theirs.error} />}
        {merged && schedule && (
          <MergeTable
            {...props}
            theirs={schedule}
            fields={merged.fields}
            choices={choices}
            onChoose={(field, side) => setChoices({ ...choices, [field]: side })}
          />
        )}
        {problem !== null && <ProblemNotice title="Not rebased; the draft is as it was." error={problem} />}
        <div className={classes.dialogActions}>
          <Button variant="default" onClick={onClose}>
            Later
          </Button>
          <GuardedButton needs="editor" reason={reason} loading={isBusy} onClick={() => void rebase()}>
            Rebase my draft on revision {newest}
          </GuardedButton>
        </div>
      </div>
    </Modal>
  );
}

function leftText(undecided: readonly string[]): string {
  return undecided.length === 0 ? "" : `Choose for ${undecided.map(fieldLabel).join(", ")}`;
}

function useRebase({ run, author, during, onRebased }: ConflictProps, choices: Record<string, Side>) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const task = async () => {
    const params = { path: { run, author } };
    const reply = await call(api.POST("/api/v1/runs/{run}/drafts/{author}/rebase", { params, body: { choices } }));
    if (reply.conflicts.length === 0) onRebased(reply.draft);
    else
      setProblem(new Error(`another revision came meanwhile: ${leftText(reply.conflicts.map((each) => each.field))}`));
  };
  const rebase = async () => {
    setBusy(true);
    setProblem(null);
    try {
      await during(task);
    } catch (error) {
      setProblem(error);
    }
    setBusy(false);
  };
  return { rebase, isBusy, problem };
}

type MergeTableProps = ConflictProps & {
  theirs: Schedule;
  fields: readonly MergedField[];
  choices: Readonly<Record<string, Side>>;
  onChoose: (field: string, side: Side) => void;
};

function MergeTable(props: MergeTableProps) {
  const order = (each: MergedField) => (each.fate === "conflict" ? 0 : 1);
  const fields = [...props.fields].sort((a, b) => order(a) - order(b));
  return (
    <table className={classes.mergeTable}>
      <caption className="lm-sr">What each side changed</caption>
      <thead>
        <tr>
          <th scope="col">Field</th>
          <th scope="col">Base, revision {props.base}</th>
          <th scope="col">Theirs, revision {props.newest}</th>
          <th scope="col">Mine, the draft</th>
          <th scope="col">Becomes</th>
        </tr>
      </thead>
      <tbody>
        {fields.map((each) => (
          <MergeRow key={each.field} {...props} {...each} />
        ))}
      </tbody>
    </table>
  );
}

const SIDES: [Side, string][] = [
  ["mine", "Mine"],
  ["theirs", "Theirs"],
];

function MergeRow(props: MergeTableProps & MergedField) {
  const { field, fate, baseSchedule, theirs, mine, span, choices, onChoose } = props;
  const all = [baseSchedule, theirs, mine];
  const top = topOf(
    all.flatMap((schedule) => curvesOf(schedule, [field])),
    span,
  );
  return (
    <tr data-conflict={fate === "conflict" || undefined}>
      <th scope="row">{fieldLabel(field)}</th>
      {all.map((schedule, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: base, theirs, mine
        <td key={i}>
          <Entry schedule={schedule} field={field} span={span} top={top} />
        </td>
      ))}
      <td>
        {fate === "conflict" ? (
          <fieldset className={classes.choice}>
            <legend className="lm-sr">{fieldLabel(field)}: whose</legend>
            {SIDES.map(([side, label]) => (
              <Radio
                key={side}
                size="sm"
                name={`whose ${field}`}
                label={label}
                checked={choices[field] === side}
                onChange={() => onChoose(field, side)}
              />
            ))}
          </fieldset>
        ) : (
          <span className="lm-muted">{fate === "both alike" ? "the same on both sides" : `${fate}, by itself`}</span>
        )}
      </td>
    </tr>
  );
}

function Entry({ schedule, field, span, top }: { schedule: Schedule; field: string; span: Span; top: number }) {
  const curve = curveIn(schedule, field);
  const source = sourceOf(field);
  const scales = scalesOf(span, top, { left: 1, top: 3, width: 148, height: 34 });
  return (
    <div className={classes.entry}>
      {curve && (
        <svg width={150} height={40} aria-hidden="true" className={classes.small}>
          <path d={pathOf(curve, span.from, span.to, scales)} className={classes.smallAfter} />
        </svg>
      )}
      <span>{source !== null && isRetired(schedule, source) ? "retired" : curveText(curve)}</span>
    </div>
  );
}
