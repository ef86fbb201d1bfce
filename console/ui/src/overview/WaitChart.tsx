import { useMemo } from "react";
import type { Model } from "../api/client";
import { type Column, DataTable, formatExact, formatSeconds } from "../ui";
import classes from "./overview.module.css";
import { scaleOf, type WaitScale } from "./scale";
import { SHOWN_STEPS } from "./waits";

const WIDTH = 1200;
const HEIGHT = 132;

interface StepWait {
  step: number;
  max: number | null;
  mean: number | null;
}

function rowsOf(waits: Model<"StepWaits">): StepWait[] {
  return waits.step.map((step, index) => ({
    step,
    max: waits.max_s[index] ?? null,
    mean: waits.mean_s[index] ?? null,
  }));
}

/** How long ranks waited for each step: the longest wait as a bar, the mean as the part of it that is filled. */
export function WaitChart({ waits }: { waits: Model<"StepWaits"> }) {
  const rows = useMemo(() => rowsOf(waits), [waits]);
  const scale = scaleOf(waits.step, waits.max_s, SHOWN_STEPS);
  const worst = rows.reduce<StepWait | null>((best, row) => ((row.max ?? -1) > (best?.max ?? -1) ? row : best), null);
  if (worst?.max == null) {
    return <p className={classes.noWaits}>No rank has told yet how long it waited for a step.</p>;
  }
  const isCut = worst.max > scale.top;
  const says = `longest ${formatSeconds(worst.max)} at step ${formatExact(worst.step)}${isCut ? ", cut off" : ""}`;
  return (
    <figure className={classes.waits}>
      <span className={classes.waitsTop}>{formatSeconds(scale.top)}</span>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Data wait of the last ${rows.length} steps, ${says}`}
      >
        <line x1={0} x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} className={classes.axis} />
        {rows.map((row) => row.step >= scale.first && <Bar key={row.step} row={row} scale={scale} />)}
      </svg>
      <figcaption className={classes.waitsFoot}>
        <span className="lm-num">step {formatExact(scale.first)}</span>
        <span className={classes.legend}>
          <i className={classes.swatchLongest} /> longest wait of a rank
          <i className={classes.swatchMean} /> mean of all ranks
          <span className="lm-num">· {says}</span>
        </span>
        <span className="lm-num">step {formatExact(scale.first + scale.slots - 1)}</span>
      </figcaption>
    </figure>
  );
}

function Bar({ row, scale }: { row: StepWait; scale: WaitScale }) {
  if (row.max === null) return null;
  const slot = WIDTH / scale.slots;
  const x = (row.step - scale.first) * slot + slot * 0.15;
  const height = (value: number) => Math.min(1, value / scale.top) * (HEIGHT - 6) + 1.5;
  const [max, mean] = [height(row.max), row.mean === null ? 0 : height(row.mean)];
  const says = `step ${formatExact(row.step)}: longest ${formatSeconds(row.max)}, mean ${formatSeconds(row.mean ?? 0)}`;
  return (
    <g>
      <title>{says}</title>
      <rect x={x} width={slot * 0.7} y={HEIGHT - max} height={max} className={classes.longest} />
      <rect x={x} width={slot * 0.7} y={HEIGHT - mean} height={mean} className={classes.mean} />
      {row.max > scale.top && <rect x={x} width={slot * 0.7} y={0} height={4} className={classes.cutOff} />}
    </g>
  );
}

const COLUMNS: Column<StepWait>[] = [
  { key: "step", title: "Step", isNumber: true, cell: (row) => formatExact(row.step) },
  {
    key: "max",
    title: "Longest wait",
    isNumber: true,
    cell: (row) => (row.max === null ? "not told" : formatSeconds(row.max)),
  },
  {
    key: "mean",
    title: "Mean wait",
    isNumber: true,
    cell: (row) => (row.mean === null ? "not told" : formatSeconds(row.mean)),
  },
];

/** The same numbers, newest first. */
export function WaitTable({ waits }: { waits: Model<"StepWaits"> }) {
  const rows = useMemo(() => rowsOf(waits).reverse(), [waits]);
  return (
    <DataTable caption="Data wait by step" columns={COLUMNS} rows={rows} rowKey={(row) => row.step} maxHeight="220px" />
  );
}
