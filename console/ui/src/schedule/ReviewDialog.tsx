import { Button, Modal, Textarea, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { useSession } from "../api/session";
import { diffText } from "../curves/diff";
import { whole } from "../curves/format";
import type { Schedule } from "../curves/schedule";
import { useRuns } from "../runs/query";
import { GuardedButton, ProblemNotice } from "../ui";
import { Impact } from "./Impact";
import { numberOf } from "./NumberField";
import { Overlay } from "./Overlay";
import { type Change, type Outcome, publish } from "./publishing";
import type { ScheduleView } from "./queries";
import classes from "./schedule.module.css";
import type { Span } from "./view";

export interface ReviewProps {
  title: string;
  run: string;
  view: ScheduleView;
  /** The revision that the change is published over, as it was when the dialog was opened: what a person reviewed. A
   * newer one that comes meanwhile must not be overwritten unseen. */
  base: number;
  before: Schedule;
  after: Schedule;
  change: Change;
  firstFree: number;
  span: Span;
  message?: string;
  onClose: () => void;
  onOutcome: (outcome: Outcome) => void | Promise<void>;
  /** Runs the publish, up to the end of `onOutcome`: keeps others from writing the draft meanwhile. */
  during?: (task: () => Promise<void>) => Promise<void>;
}

const ENDED = new Set(["ended", "done", "closed", "finished"]);

/** What is about to be published: in words, as curves, in tokens; and the fields that it needs. */
export function ReviewDialog(props: ReviewProps) {
  const { title, run, view, after, change, firstFree, span } = props;
  const [{ base, before }] = useState({ base: props.base, before: props.before });
  const [atText, setAtText] = useState("");
  const [message, setMessage] = useState(props.message ?? "");
  const [name, setName] = useState("");
  const isLive = useIsLive(run);
  const atStep = atText.trim() === "" ? null : numberOf(atText);
  const [until, setUntil] = useState(Math.max(span.to, firstFree + 1));
  const { isBusy, outcome, send } = usePublish(props, base, { message: message.trim(), atStep });
  const reason = reasonOf({ atStep, message, name, run, isLive });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!reason) void send();
  };
  return (
    <Modal opened onClose={props.onClose} title={title} size={860} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} className={classes.review}>
        <Summary lines={diffText(before, after, atStep ?? firstFree)} isHold={change.is === "hold"} />
        <Overlay
          before={before}
          after={after}
          fromStep={atStep ?? firstFree}
          span={span}
          beforeName={`revision ${base}`}
          afterName={
            change.is === "restore" ? `revision ${change.revision} again` : change.is === "hold" ? "held" : "this draft"
          }
        />
        <Impact
          run={run}
          schedule={after}
          atStep={atStep !== null && atStep >= firstFree ? atStep : null}
          until={until}
          onUntil={setUntil}
        />
        <div className={classes.reviewFields}>
          <Textarea
            label="Message"
            description="Why; it stays with the revision"
            required
            autosize
            minRows={2}
            value={message}
            onChange={(event) => setMessage(event.currentTarget.value)}
            data-autofocus
          />
          <TextInput
            label="From step"
            description={`Empty: the first that can still change, ${whole(firstFree)} now`}
            inputMode="numeric"
            value={atText}
            onChange={(event) => setAtText(event.currentTarget.value)}
            error={stepHint(atStep, firstFree, view.planned)}
          />
          {isLive && (
            <TextInput
              label={`Type ${run} to confirm`}
              description="The run is training"
              required
              autoComplete="off"
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
            />
          )}
        </div>
        {outcome !== null && <Refusal outcome={outcome} onUse={(step) => setAtText(String(step))} />}
        <div className={classes.dialogActions}>
          <Button variant="default" onClick={props.onClose}>
            Back to the draft
          </Button>
          <GuardedButton needs="publisher" reason={reason} type="submit" loading={isBusy} onClick={() => undefined}>
            {atStep !== null && atStep > view.planned ? `Schedule for step ${whole(atStep)}` : "Publish"}
          </GuardedButton>
        </div>
      </form>
    </Modal>
  );
}

function useIsLive(run: string): boolean {
  const { data } = useRuns();
  const found = data?.find((each) => each.run === run);
  return found === undefined || !ENDED.has(found.state);
}

function usePublish(props: ReviewProps, base: number, form: { message: string; atStep: number | null }) {
  const { name } = useSession();
  const [isBusy, setBusy] = useState(false);
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const task = async () => {
    const found = await publish(props.run, base, props.change, form, name);
    setOutcome(found);
    await props.onOutcome(found);
  };
  const send = async () => {
    setBusy(true);
    await (props.during ?? alone)(task);
    setBusy(false);
  };
  return { isBusy, outcome, send };
}

const alone = (task: () => Promise<void>) => task();

interface Filled {
  atStep: number | null;
  message: string;
  name: string;
  run: string;
  isLive: boolean;
}

/** What is still missing before it can be published; empty: nothing. */
export function reasonOf({ atStep, message, name, run, isLive }: Filled): string {
  if (message.trim() === "") return "Write a message: it stays with the revision";
  if (atStep !== null && !(Number.isInteger(atStep) && atStep >= 0))
    return "From step must be a whole number, or empty";
  if (isLive && name.trim() !== run) return `Type ${run} to confirm: the run is training`;
  return "";
}

/** What a step that was typed leads to, where that is not what one may expect. */
export function stepHint(atStep: number | null, firstFree: number, planned: number): string | null {
  if (atStep === null || !Number.isFinite(atStep)) return null;
  if (atStep < firstFree) return `Steps before ${whole(firstFree)} are promised to ranks and cannot change`;
  if (atStep > planned)
    return `It has no plan yet (${whole(planned)} have): the publish waits, and is suspended if the schedule changes before`;
  return null;
}

function Summary({ lines, isHold }: { lines: readonly string[]; isHold: boolean }) {
  if (lines.length === 0) {
    return <p>{isHold ? "All shares are constant already: holding them changes nothing." : "Nothing changes."}</p>;
  }
  return (
    <ul className={classes.summary} aria-label="Changes">
      {lines.map((line) => (
        <li key={line}>{line}</li>
      ))}
    </ul>
  );
}

function Refusal({ outcome, onUse }: { outcome: Outcome; onUse: (step: number) => void }) {
  if (outcome.is === "too late") {
    return (
      <div role="alert" className={classes.tooLate}>
        <span>{outcome.problem.message}. The draft is kept.</span>
        <Button variant="default" onClick={() => onUse(outcome.firstFree)}>
          Use step {whole(outcome.firstFree)}
        </Button>
      </div>
    );
  }
  return outcome.is === "refused" ? (
    <ProblemNotice title="Not published; the draft is kept." error={outcome.problem} />
  ) : null;
}
