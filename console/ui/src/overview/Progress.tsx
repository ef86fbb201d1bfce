import type { Model } from "../api/client";
import { overReason } from "../schedule/ending";
import { formatExact, formatShare } from "../ui";
import classes from "./overview.module.css";

/** Steps that are consumed, and how far ahead plans are: of the whole run where its end is known. */
export function Progress({ view }: { view: Model<"OverviewView"> }) {
  const { acknowledged, bound, planned, end_step } = view;
  const over = overReason(end_step, bound);
  const ahead = Math.max(0, planned - acknowledged);
  return (
    <div className={classes.progress}>
      {end_step !== null && (
        <div
          className={classes.bar}
          role="progressbar"
          aria-label="Steps of the run"
          aria-valuemin={0}
          aria-valuemax={end_step}
          aria-valuenow={acknowledged}
          aria-valuetext={`${acknowledged} of ${end_step} steps`}
        >
          <span className={classes.barPlanned} style={{ width: `${(100 * planned) / end_step}%` }} />
          <span className={classes.barDone} style={{ width: `${(100 * acknowledged) / end_step}%` }} />
        </div>
      )}
      <p className={classes.progressText}>
        {end_step !== null && (
          <span>
            <b className="lm-num">{formatShare(acknowledged / end_step)}</b> of {formatExact(end_step)} steps
          </span>
        )}
        <span>
          planned <b className="lm-num">{formatExact(ahead)}</b> ahead, up to step {formatExact(planned)}
        </span>
        <span>
          bound <b className="lm-num">{formatExact(Math.max(0, bound - acknowledged))}</b> ahead:{" "}
          {over
            ? "nothing of the schedule can change any more"
            : `changes act from step ${formatExact(bound)} at the earliest`}
        </span>
      </p>
    </div>
  );
}
