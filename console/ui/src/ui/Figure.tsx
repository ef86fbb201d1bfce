import { formatSeconds } from "./format";
import classes from "./ui.module.css";

interface FigureProps {
  label: string;
  /** Ready for people; null: not known. */
  value: string | null;
  unit?: string;
  /** Seconds that it was taken over. */
  window_s?: number | null;
  /** Why it is not known; shown instead of a number. */
  missing?: string;
  tone?: "ok" | "warn" | "bad";
}

/** One number with its unit and the window it was taken over. Never "N/A". */
export function Figure({ label, value, unit, window_s, missing, tone }: FigureProps) {
  const note = window_s ? `over ${formatSeconds(window_s < 10 ? window_s : Math.round(window_s))}` : "";
  return (
    <div className={classes.figure}>
      <dt className={classes.figureLabel}>{label}</dt>
      <dd className={classes.figureValue} data-tone={tone}>
        {value === null ? (
          <span className={classes.figureMissing}>{missing ?? "not known yet"}</span>
        ) : (
          <>
            {value}
            {unit && <span className="lm-unit">{unit}</span>}
          </>
        )}
      </dd>
      <dd className={classes.figureNote}>{value === null ? "" : note}</dd>
    </div>
  );
}
