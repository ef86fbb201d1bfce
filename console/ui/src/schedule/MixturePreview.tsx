import { useMemo } from "react";
import { percent, whole } from "../curves/format";
import { type Schedule, sharesAt, weightField } from "../curves/schedule";
import { StepTicks, type Tick } from "./Axes";
import { frameOf } from "./Canvas";
import { areaOf, type Look, scalesOf } from "./drawing";
import classes from "./schedule.module.css";
import { type Band, stack } from "./stack";
import { type Span, ticks as ticksOf } from "./view";

interface PreviewProps {
  width: number;
  height: number;
  draft: Schedule;
  names: readonly string[];
  looks: ReadonlyMap<string, Look>;
  span: Span;
  steps_X: readonly number[];
  ticks: readonly Tick[];
  firstFree: number;
  active: string;
}

/** The mixture as it comes out: shares of all sources on top of each other. */
export function MixturePreview({
  width,
  height,
  draft,
  names,
  looks,
  span,
  steps_X,
  ticks,
  firstFree,
  active,
}: PreviewProps) {
  const frame = useMemo(() => frameOf(width, height), [width, height]);
  const scales = useMemo(() => scalesOf(span, 1, frame), [span, frame]);
  const bands = useMemo(() => stack(draft, names, steps_X), [draft, names, steps_X]);
  const edge = Math.min(Math.max(scales.x(firstFree), frame.left), frame.left + frame.width);
  return (
    <svg
      width={width}
      height={height}
      className={classes.canvas}
      role="img"
      aria-label="The mixture with this draft, normalised"
    >
      {bands.map((band) => (
        <BandArea
          key={band.name}
          band={band}
          d={areaOf(steps_X, band.low_X, band.high_X, scales)}
          look={looks.get(weightField(band.name))}
          isActive={weightField(band.name) === active}
        />
      ))}
      <StepTicks ticks={ticks} scales={scales} frame={frame} />
      {ticksOf(0, 1, 2).map((value) => (
        <text key={value} className={classes.tick} x={frame.left - 8} y={scales.y(value) + 4} textAnchor="end">
          {percent(value)}
        </text>
      ))}
      <rect className={classes.veil} x={frame.left} y={frame.top} width={edge - frame.left} height={frame.height} />
      <rect className={classes.box} x={frame.left} y={frame.top} width={frame.width} height={frame.height} />
    </svg>
  );
}

function BandArea({ band, d, look, isActive }: { band: Band; d: string; look?: Look | undefined; isActive: boolean }) {
  return (
    <path
      d={d}
      className={band.isRest ? classes.bandRest : classes.band}
      data-active={isActive || undefined}
      style={band.isRest ? undefined : { fill: look?.colour }}
    >
      <title>{band.isRest ? "all other sources" : band.name}</title>
    </path>
  );
}

/** The same as numbers. */
export function MixtureTable({
  draft,
  names,
  steps,
}: {
  draft: Schedule;
  names: readonly string[];
  steps: readonly number[];
}) {
  const shares = steps.map((step) => sharesAt(draft, step));
  const rest = (x: number) => Math.max(0, 1 - names.reduce((sum, name) => sum + (shares[x]?.get(name) ?? 0), 0));
  const isWhole = Object.keys(draft.weights).every((name) => names.includes(name));
  return (
    <table className={classes.plainTable}>
      <caption className="lm-sr">Shares of the sources over steps</caption>
      <thead>
        <tr>
          <th scope="col">Step</th>
          {names.map((name) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
          {!isWhole && <th scope="col">others</th>}
        </tr>
      </thead>
      <tbody>
        {steps.map((step, x) => (
          <tr key={step}>
            <th scope="row">{whole(step)}</th>
            {names.map((name) => (
              <td key={name}>{percent(shares[x]?.get(name) ?? 0)}</td>
            ))}
            {!isWhole && <td>{percent(rest(x))}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
