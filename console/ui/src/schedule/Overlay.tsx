import { diff } from "../curves/diff";
import { whole } from "../curves/format";
import { curveIn, fieldLabel, type Schedule } from "../curves/schedule";
import { pathOf, scalesOf } from "./drawing";
import classes from "./schedule.module.css";
import { curvesOf, type Span, topOf } from "./view";

const [WIDTH, HEIGHT] = [264, 84];

interface OverlayProps {
  before: Schedule;
  after: Schedule;
  fromStep: number;
  span: Span;
  beforeName: string;
  afterName: string;
}

/** Each changed curve by itself, what was dashed beneath what will be. */
export function Overlay({ before, after, fromStep, span, beforeName, afterName }: OverlayProps) {
  const changed = diff(before, after, fromStep);
  return (
    <div className={classes.overlays}>
      {changed.slice(0, 12).map(({ field, lines }) => (
        <figure key={field} className={classes.overlay}>
          <figcaption>{fieldLabel(field)}</figcaption>
          <Small before={before} after={after} field={field} fromStep={fromStep} span={span} label={lines.join("; ")} />
        </figure>
      ))}
      {changed.length > 12 && <p className="lm-muted">and {changed.length - 12} more curves, listed above.</p>}
      <p className={classes.legend}>
        <svg width={24} height={8} aria-hidden="true">
          <line x1={0} x2={24} y1={4} y2={4} className={classes.smallBefore} />
        </svg>
        {beforeName}
        <svg width={24} height={8} aria-hidden="true">
          <line x1={0} x2={24} y1={4} y2={4} className={classes.smallAfter} />
        </svg>
        {afterName}
      </p>
    </div>
  );
}

function Small({
  before,
  after,
  field,
  fromStep,
  span,
  label,
}: Omit<OverlayProps, "beforeName" | "afterName"> & { field: string; label: string }) {
  const [was, is] = [curveIn(before, field), curveIn(after, field)];
  const top = topOf([...curvesOf(before, [field]), ...curvesOf(after, [field])], span);
  const scales = scalesOf(span, top, { left: 2, top: 6, width: WIDTH - 4, height: HEIGHT - 24 });
  const x = scales.x(Math.max(fromStep, span.from));
  return (
    <svg width={WIDTH} height={HEIGHT} role="img" aria-label={label} className={classes.small}>
      <line x1={x} x2={x} y1={2} y2={HEIGHT - 18} className={classes.smallEdge} />
      {was && <path d={pathOf(was, span.from, span.to, scales)} className={classes.smallBefore} />}
      {is && <path d={pathOf(is, Math.max(fromStep, span.from), span.to, scales)} className={classes.smallAfter} />}
      <text x={2} y={HEIGHT - 4} className={classes.tick}>
        {whole(span.from)}
      </text>
      <text x={WIDTH - 2} y={HEIGHT - 4} textAnchor="end" className={classes.tick}>
        {whole(span.to)}
      </text>
    </svg>
  );
}
