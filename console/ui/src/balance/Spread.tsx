import { useMemo } from "react";
import { ChartWithTable, formatExact, formatShare } from "../ui";
import classes from "./balance.module.css";
import { Plot } from "./Plot";
import type { Balance } from "./query";
import { StepTable } from "./StepTable";
import { gaps, lines, spread } from "./series";

interface SpreadProps {
  run: string;
  view: Balance;
  step?: number;
  onStep: (step: number) => void;
}

const SERIES = [
  { label: "max / mean of cost", colour: "--lm-series-1", width: 1.75 },
  { label: "fill", colour: "--lm-series-0", scale: "z" as const },
];

/** How even the steps are, and how full. */
export function Spread({ run, view, step, onStep }: SpreadProps) {
  const { steps } = view;
  const drawn = useMemo(() => lines(steps.step, [steps.skew, steps.fill], steps.generation), [steps]);
  const skew = spread(steps.skew);
  const missing = gaps(steps.step);
  const label = skew
    ? `Costliest rank over the mean, by step: ${skew.mean.toFixed(3)} in the mean, at most ${skew.max.toFixed(3)}.`
    : "Costliest rank over the mean, by step: not kept for these steps.";
  return (
    <ChartWithTable
      title="Evenness and fill by step"
      aside={<Said view={view} />}
      chart={
        <>
          <Plot
            label={label}
            lines={drawn}
            series={SERIES}
            height={236}
            format={(value) => value.toFixed(3)}
            formatRight={formatShare}
            within={[1, 1.05]}
            withinRight={[0.9, 1]}
            onPick={onStep}
            picked={step}
          />
          {missing.length > 0 && (
            <p className={classes.note}>
              Not in the log:{" "}
              {missing
                .slice(0, 4)
                .map(([first, last]) => (first === last ? `step ${first}` : `steps ${first} to ${last}`))
                .join(", ")}
              {missing.length > 4 && `, and ${missing.length - 4} more stretches`}. They are drawn as gaps.
            </p>
          )}
        </>
      }
      table={<StepTable run={run} view={view} step={step} onStep={onStep} />}
    />
  );
}

function Said({ view }: { view: Balance }) {
  const [skew, fill] = [spread(view.steps.skew), spread(view.steps.fill)];
  return (
    <span className={classes.said}>
      {formatExact(view.steps.step.length)} steps
      {skew && `, mean ${skew.mean.toFixed(3)}, worst ${skew.max.toFixed(3)}`}
      {fill && `, ${formatShare(fill.mean)} full`}
    </span>
  );
}
