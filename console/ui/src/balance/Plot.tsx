import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { themed, useDark, useWidth } from "../mesh/useBox";
import { formatExact } from "../ui";
import classes from "./balance.module.css";
import type { Lines } from "./series";

export interface PlotSeries {
  label: string;
  /** CSS variable of its colour. */
  colour: string;
  dash?: number[];
  width?: number;
  kind?: "line" | "bars" | "steps";
  /** `y` left, `z` right. */
  scale?: "y" | "z";
}

interface PlotProps {
  label: string;
  lines: Lines;
  series: PlotSeries[];
  height: number;
  /** How values of the left and the right axis are told. */
  format: (value: number) => string;
  formatRight?: (value: number) => string;
  /** Keep these values of the axes in view, so that noise does not look like more than it is. */
  within?: [number, number];
  withinRight?: [number, number];
  /** What x is. */
  across?: string;
  /** Where bars stand on. */
  base?: number;
  onPick?: (x: number) => void;
  /** The x that is looked at. */
  picked?: number;
  /** Plots with the same word have one cursor. */
  sync?: string;
}

/** A uPlot chart in the theme's colours. New data replaces the old in place; gaps stay gaps. */
export function Plot(props: PlotProps) {
  const [box, width] = useWidth();
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const isDark = useDark();
  const latest = useRef(props);
  latest.current = props;
  const shape = props.series.map((one) => `${one.label}/${one.colour}/${one.kind}`).join("|");
  // biome-ignore lint/correctness/useExhaustiveDependencies: another shape or theme makes another chart
  useEffect(() => {
    if (!host.current || !width) return;
    const made = new uPlot(options(latest, width), latest.current.lines as uPlot.AlignedData, host.current);
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [shape, isDark, props.height, width > 0]);
  useEffect(() => plot.current?.setData(props.lines as uPlot.AlignedData), [props.lines]);
  useEffect(() => {
    if (width) plot.current?.setSize({ width, height: props.height });
  }, [width, props.height]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the mark is drawn anew where it is another
  useEffect(() => plot.current?.redraw(false), [props.picked]);
  return (
    <div ref={box} className={classes.plot} role="img" aria-label={props.label}>
      <div ref={host} />
    </div>
  );
}

type Latest = { current: PlotProps };

/** Steps and ranks are whole. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];

function options(latest: Latest, width: number): uPlot.Options {
  const { series, height, sync, formatRight } = latest.current;
  const axis = {
    stroke: themed("--lm-muted"),
    grid: { stroke: themed("--lm-line"), width: 1 },
    ticks: { show: false },
  };
  const font = `11px ${themed("--lm-sans")}`;
  const right = series.some((one) => one.scale === "z");
  const hasBars = series.some((one) => one.kind === "bars");
  return {
    width,
    height,
    legend: { show: true, live: true },
    cursor: { y: false, points: { size: 6 }, sync: sync ? { key: sync } : undefined, drag: { x: false, y: false } },
    scales: {
      x: { time: false, range: (_, low, high) => (hasBars ? [low - 0.5, high + 0.5] : [low, high]) },
      y: { range: (_, low, high) => range(latest.current.within, low, high) },
      z: { range: (_, low, high) => range(latest.current.withinRight, low, high) },
    },
    axes: [
      { ...axis, font, grid: { show: false }, size: 26, incrs: WHOLE },
      { ...axis, font, size: 58, values: (_, ticks) => ticks.map((tick) => latest.current.format(tick)) },
      ...(right
        ? [
            {
              ...axis,
              font,
              side: 1 as const,
              scale: "z",
              size: 58,
              grid: { show: false },
              values: (_: uPlot, ticks: number[]) => ticks.map((tick) => (formatRight ?? String)(tick)),
            },
          ]
        : []),
    ],
    series: [
      { label: latest.current.across ?? "step", value: (_, value) => (value == null ? "–" : formatExact(value)) },
      ...series.map((one) => line(one, latest)),
    ],
    hooks: { ready: [(made) => listen(made, latest)], draw: [(made) => mark(made, latest.current.picked)] },
  };
}

function line(one: PlotSeries, latest: Latest): uPlot.Series {
  const colour = themed(one.colour);
  const { bars, stepped } = uPlot.paths;
  const format = (value: number) =>
    (one.scale === "z" ? (latest.current.formatRight ?? String) : latest.current.format)(value);
  return {
    label: one.label,
    scale: one.scale ?? "y",
    stroke: colour,
    width: one.kind === "bars" ? 0 : (one.width ?? 1.5),
    dash: one.dash,
    fill: one.kind === "bars" ? colour : undefined,
    spanGaps: false,
    points: { show: false },
    paths:
      one.kind === "bars" ? bars?.({ size: [0.8, 24] }) : one.kind === "steps" ? stepped?.({ align: 1 }) : undefined,
    ...(one.kind === "bars" && { fillTo: latest.current.base ?? 0 }),
    value: (made, value) => (value != null ? format(value) : made.cursor.idx == null ? "–" : "not known"),
  };
}

/** What is drawn, and at least `within`: a bound of it that holds is the end of the axis. */
function range(within: [number, number] | undefined, low: number | null, high: number | null): [number, number] {
  const [least, most] = [Math.min(low ?? 0, within?.[0] ?? low ?? 0), Math.max(high ?? 1, within?.[1] ?? high ?? 1)];
  const room = (most - least) * 0.06 || Math.abs(most) * 0.06 || 1;
  return [least === within?.[0] ? least : least - room, most === within?.[1] ? most : most + room];
}

function listen(made: uPlot, latest: Latest): void {
  made.over.addEventListener("click", () => {
    const x = made.cursor.idx === null || made.cursor.idx === undefined ? undefined : made.data[0][made.cursor.idx];
    if (x !== undefined && Number.isInteger(x)) latest.current.onPick?.(x);
  });
}

function mark(made: uPlot, picked: number | undefined): void {
  if (picked === undefined) return;
  const x = Math.round(made.valToPos(picked, "x", true));
  const { left, top, width, height } = made.bbox;
  if (x < left || x > left + width) return;
  made.ctx.save();
  made.ctx.strokeStyle = themed("--lm-accent");
  made.ctx.lineWidth = 2 * devicePixelRatio;
  made.ctx.beginPath();
  made.ctx.moveTo(x, top);
  made.ctx.lineTo(x, top + height);
  made.ctx.stroke();
  made.ctx.restore();
}
