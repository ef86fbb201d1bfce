import { Button } from "@mantine/core";
import { useState } from "react";
import { api, call, type Model } from "../api/client";
import { whole } from "../curves/format";
import { GuardedButton, Icon, ProblemNotice, StatusMark, toneOf } from "../ui";
import { NumberField } from "./NumberField";
import { type ScheduledHead, useRefresh } from "./queries";
import classes from "./schedule.module.css";

interface ScheduledPanelProps {
  run: string;
  scheduled: readonly ScheduledHead[];
  /** The first step that one can wait for. */
  firstFree: number;
  onOpen: (found: Model<"ScheduledView">) => void;
}

/** Publishes that wait for their step; those that are suspended say loudly why. */
export function ScheduledPanel({ run, scheduled, firstFree, onOpen }: ScheduledPanelProps) {
  if (scheduled.length === 0) {
    return (
      <p className="lm-muted">
        None. A publish for a step that has no plan yet waits here until the planner comes to it.
      </p>
    );
  }
  return (
    <ul className={classes.scheduled}>
      {scheduled.map((each) => (
        <Waiting key={each.number} run={run} each={each} firstFree={firstFree} onOpen={onOpen} />
      ))}
    </ul>
  );
}

function Waiting({ run, each, firstFree, onOpen }: Omit<ScheduledPanelProps, "scheduled"> & { each: ScheduledHead }) {
  const { problem, isBusy, act } = useAct(run);
  const [step, setStep] = useState(each.at_step);
  const path = { run, number: each.number };
  const isSuspended = each.state === "suspended";
  const cancel = () => act(() => call(api.DELETE("/api/v1/runs/{run}/scheduled/{number}", { params: { path } })));
  const retime = () =>
    act(() =>
      call(api.POST("/api/v1/runs/{run}/scheduled/{number}/retime", { params: { path }, body: { at_step: step } })),
    );
  const open = () =>
    act(async () => onOpen(await call(api.GET("/api/v1/runs/{run}/scheduled/{number}", { params: { path } }))));
  return (
    <li className={classes.waiting} data-suspended={isSuspended || undefined}>
      <div className={classes.waitingHead}>
        <StatusMark tone={isSuspended ? "bad" : toneOf(each.state)} word={each.state} />
        <strong>{each.message}</strong>
        <span className="lm-muted">
          for step {whole(each.at_step)}, by {each.author}, made from revision {each.base}
        </span>
      </div>
      {isSuspended && (
        <p className={classes.suspended} role="alert">
          <Icon name="warn" /> It will not happen: {each.reason}. Open it as a draft to bring it up to date, or cancel
          it.
        </p>
      )}
      <div className={classes.waitingActions}>
        {!isSuspended && (
          <>
            <NumberField label="Wait for step" value={step} show={whole} step={1} min={firstFree} onCommit={setStep} />
            <GuardedButton
              needs="publisher"
              variant="default"
              onClick={retime}
              loading={isBusy}
              reason={step === each.at_step ? "it waits for this step already" : ""}
            >
              Re-time
            </GuardedButton>
          </>
        )}
        <Button variant="default" onClick={open}>
          Open as draft
        </Button>
        <GuardedButton needs="publisher" variant="subtle" color="red" onClick={cancel}>
          Cancel it
        </GuardedButton>
      </div>
      {problem !== null && <ProblemNotice error={problem} />}
    </li>
  );
}

function useAct(run: string) {
  const refresh = useRefresh(run);
  const [problem, setProblem] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const act = async (does: () => Promise<unknown>) => {
    setProblem(null);
    setBusy(true);
    try {
      await does();
      await refresh();
    } catch (error) {
      setProblem(error);
    }
    setBusy(false);
  };
  return { problem, isBusy, act };
}
