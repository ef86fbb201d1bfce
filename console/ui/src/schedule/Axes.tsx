import { weight, whole } from "../curves/format";
import type { CanvasProps } from "./Canvas";
import type { Frame, Scales } from "./drawing";
import classes from "./schedule.module.css";
import { ticks as ticksOf } from "./view";

/** Room that the label of a line needs beside it. */
const LABEL_PX = 130;

export interface Tick {
  readonly step: number;
  readonly label: string;
}

/** Grid lines, numbers, the past, the present, and publishes that wait for their step. */
export function Axes(props: CanvasProps & { frame: Frame; scales: Scales }) {
  const { frame, scales, top, span, limits, active } = props;
  const bottom = frame.top + frame.height;
  const edge = Math.min(Math.max(scales.x(limits.firstFree), frame.left), frame.left + frame.width);
  const isCount = active === "microbatches" || active === "seq_len";
  return (
    <g>
      <defs>
        <pattern id="past" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <line x1="0" y1="0" x2="0" y2="7" className={classes.hatch} />
        </pattern>
      </defs>
      <rect className={classes.past} x={frame.left} y={frame.top} width={edge - frame.left} height={frame.height} />
      <rect x={frame.left} y={frame.top} width={edge - frame.left} height={frame.height} fill="url(#past)" />
      {ticksOf(0, top, 5).map((value) => (
        <g key={value}>
          <line
            className={classes.gridLine}
            x1={frame.left}
            x2={frame.left + frame.width}
            y1={scales.y(value)}
            y2={scales.y(value)}
          />
          <text className={classes.tick} x={frame.left - 8} y={scales.y(value) + 4} textAnchor="end">
            {isCount ? whole(value) : weight(value)}
          </text>
        </g>
      ))}
      <StepTicks ticks={props.ticks} scales={scales} frame={frame} />
      {props.marks
        .filter((mark) => mark.at >= span.from && mark.at <= span.to)
        .map((mark) => (
          <Line
            key={`${mark.at} ${mark.label}`}
            x={scales.x(mark.at)}
            frame={frame}
            label={mark.label}
            className={mark.isBad ? classes.markBad : classes.mark}
            y={bottom - 6}
          />
        ))}
      {limits.firstFree > span.from && limits.firstFree < span.to && (
        <Line
          x={edge}
          frame={frame}
          label={`from step ${whole(limits.firstFree)} on`}
          className={classes.free}
          y={frame.top - 10}
        />
      )}
      {props.now !== null && props.now > span.from && props.now < Math.min(span.to, limits.firstFree) && (
        <line className={classes.now} x1={scales.x(props.now)} x2={scales.x(props.now)} y1={frame.top} y2={bottom} />
      )}
      {props.at !== limits.firstFree && props.at > span.from && props.at < span.to && (
        <line className={classes.cursor} x1={scales.x(props.at)} x2={scales.x(props.at)} y1={frame.top} y2={bottom} />
      )}
    </g>
  );
}

export function StepTicks({ ticks, scales, frame }: { ticks: readonly Tick[]; scales: Scales; frame: Frame }) {
  const bottom = frame.top + frame.height;
  return ticks.map((tick) => (
    <g key={tick.step}>
      <line className={classes.gridLine} x1={scales.x(tick.step)} x2={scales.x(tick.step)} y1={frame.top} y2={bottom} />
      <text className={classes.tick} x={scales.x(tick.step)} y={bottom + 17} textAnchor="middle">
        {tick.label}
      </text>
    </g>
  ));
}

function Line({
  x,
  frame,
  label,
  className,
  y,
}: {
  x: number;
  frame: Frame;
  label: string;
  className?: string;
  y: number;
}) {
  const isRight = x > frame.left + frame.width - LABEL_PX && x > LABEL_PX;
  return (
    <g className={className}>
      <line x1={x} x2={x} y1={frame.top - 6} y2={frame.top + frame.height} />
      <text x={x + (isRight ? -6 : 6)} y={y} textAnchor={isRight ? "end" : "start"}>
        {label}
      </text>
    </g>
  );
}
