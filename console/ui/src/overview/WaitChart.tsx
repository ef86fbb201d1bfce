import { useMemo } from "react";
import type { Model } from "../api/client";
import { type Column, DataTable, formatExact, formatSeconds } from "../ui";
import classes from "./overview.module.css";
import { SHOWN_STEPS } from "./waits";

const WIDTH = 1200;
const HEIGHT = 132;
const SLOT = WIDTH / SHOWN_STEPS;

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
  const top = Math.max(1e-3, ...rows.map((row) => row.max ?? 0));
  const worst = rows.reduce<StepWait | null>((best, row) => ((row.max ?? -1) > (best?.max ?? -1) ? row : best), null);
  const height = (value: number) => Math.max(1.5, (value / top) * (HEIGHT - 4));
  const last = rows.at(-1)?.step ?? 0;
  const says =
    worst?.max != null ? `longest ${formatSeconds(worst.max)} at step ${formatExact(worst.step)}` : "no waits";
  return (
    <figure className={classes.waits}>
      <span className={classes.waitsTop}>{formatSeconds(top)}</span>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Data wait of the last ${rows.length} steps, ${says}`}
      >
        <line x1={0} x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} className={classes.axis} />
        {rows.map((row) => {
          const x = WIDTH - (last - row.step + 1) * SLOT;
          if (row.max === null || x < 0) return null;
          return (
            <g key={row.step}>
              <title>{`step ${formatExact(row.step)}: longest ${formatSeconds(row.max)}, mean ${formatSeconds(row.mean ?? 0)}`}</title>
              <rect
                x={x + 1.5}
                width={SLOT - 3}
                y={HEIGHT - height(row.max)}
                height={height(row.max)}
                className={classes.longest}
              />
              {row.mean !== null && (
                <rect
                  x={x + 1.5}
                  width={SLOT - 3}
                  y={HEIGHT - height(row.mean)}
                  height={height(row.mean)}
                  className={classes.mean}
                />
              )}
            </g>
          );
        })}
      </svg>
      <figcaption className={classes.waitsFoot}>
        <span className="lm-num">{rows.length ? `step ${formatExact(Math.max(0, last - SHOWN_STEPS + 1))}` : ""}</span>
        <span className={classes.legend}>
          <i className={classes.swatchLongest} /> longest wait of a rank
          <i className={classes.swatchMean} /> mean of all ranks
        </span>
        <span className="lm-num">{rows.length ? `step ${formatExact(last)}` : ""}</span>
      </figcaption>
    </figure>
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
