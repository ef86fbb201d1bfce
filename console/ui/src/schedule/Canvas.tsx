import { Button } from "@mantine/core";
import { type PointerEvent, useMemo, useRef, useState } from "react";
import type { Curve, Knot } from "../curves/curve";
import { sameCurve, valueAt } from "../curves/curve";
import { isPast, type KnotRef, type Limits, sameRef } from "../curves/edit";
import { weight, whole } from "../curves/format";
import { curveIn, fieldLabel, type Schedule } from "../curves/schedule";
import { type Grid, snap } from "../curves/snap";
import { Axes, type Tick } from "./Axes";
import { type Frame, type Look, pathOf, type Scales, scalesOf, spread, stretchesIn } from "./drawing";
import { Knots } from "./Knots";
import classes from "./schedule.module.css";
import type { EditorAction } from "./state";
import type { Span } from "./view";

export const MARGIN = { left: 58, right: 118, top: 26, bottom: 26 };
/** Of a phone. */
const NARROW = { below: 420, left: 42, right: 84 };

export interface CanvasProps {
  readonly width: number;
  readonly height: number;
  readonly draft: Schedule;
  readonly active: string;
  readonly fields: readonly string[];
  readonly looks: ReadonlyMap<string, Look>;
  readonly span: Span;
  readonly top: number;
  readonly ticks: readonly Tick[];
  readonly timeline: readonly { from_step: number; revision: number }[];
  readonly revisions: ReadonlyMap<number, Schedule>;
  readonly marks: readonly { at: number; label: string; isBad: boolean }[];
  readonly now: number | null;
  readonly at: number;
  readonly limits: Limits;
  readonly grid: Grid;
  readonly selected: readonly KnotRef[];
  readonly canEdit: boolean;
  readonly valueText: (field: string, knot: Knot) => string;
  readonly dispatch: (action: EditorAction) => void;
  readonly onActivate: (field: string) => void;
  readonly onAt: (step: number) => void;
}

/** Curves over steps: what was and is in force, the draft, and its knots to move. */
export function Canvas(props: CanvasProps) {
  const { width, height, span, top, draft, active, canEdit, grid, limits } = props;
  const frame = useMemo(() => frameOf(width, height), [width, height]);
  const scales = useMemo(() => scalesOf(span, top, frame), [span, top, frame]);
  const svg = useRef<SVGSVGElement>(null);
  const [place, setPlace] = useState<Place | null>(null);
  const click = (event: PointerEvent) => {
    const found = placeOf(event, svg.current, scales, grid, event.altKey);
    props.onAt(Math.max(0, found.at));
    setPlace(canEdit && found.at >= limits.firstFree ? found : null);
  };
  return (
    <div className={classes.canvasBox}>
      {/* biome-ignore lint/a11y/useSemanticElements: an SVG has no fieldset */}
      <svg
        ref={svg}
        width={width}
        height={height}
        className={classes.canvas}
        role="group"
        aria-label={`${fieldLabel(active)} over steps`}
        data-testid="canvas"
      >
        <title>{`${fieldLabel(active)} over steps`}</title>
        <Axes {...props} frame={frame} scales={scales} />
        <rect
          className={classes.ground}
          x={frame.left}
          y={frame.top}
          width={frame.width}
          height={frame.height}
          onPointerUp={click}
          data-testid="ground"
        />
        <clipPath id="plot">
          <rect x={frame.left} y={frame.top - 8} width={frame.width} height={frame.height + 9} />
        </clipPath>
        <g clipPath="url(#plot)" pointerEvents="none">
          {props.fields.map((field) => (
            <FieldLines key={field} {...props} field={field} scales={scales} />
          ))}
          {place && <PlaceMark place={place} scales={scales} />}
        </g>
        <Labels {...props} frame={frame} scales={scales} />
        <Knots {...props} frame={frame} scales={scales} svg={svg} onTouched={() => setPlace(null)} />
      </svg>
      {place && canEdit && (
        <PlaceMenu
          place={place}
          scales={scales}
          frame={frame}
          curve={curveIn(draft, active)}
          selected={props.selected.filter((ref) => ref.field === active && !isPast(ref, limits))}
          onClose={() => setPlace(null)}
          onAdd={() => props.dispatch({ type: "add", field: active, ...place })}
          onMove={(ref) => props.dispatch({ type: "place", ref, ...place })}
        />
      )}
    </div>
  );
}

export interface Place {
  readonly at: number;
  readonly value: number;
}

/** The step and value under a pointer, on the grid unless Alt is held. */
export function placeOf(
  event: { clientX: number; clientY: number },
  svg: SVGSVGElement | null,
  scales: Scales,
  grid: Grid,
  isFree: boolean,
): Place {
  const box = svg?.getBoundingClientRect() ?? { left: 0, top: 0 };
  const at = scales.step(event.clientX - box.left);
  const value = Math.max(0, scales.value(event.clientY - box.top));
  if (isFree) return { at: Math.round(at), value: Number(value.toPrecision(4)) };
  return { at: snap(at, grid.step), value: snap(value, grid.value) };
}

export function frameOf(width: number, height: number): Frame {
  const { left, right } = width < NARROW.below ? NARROW : MARGIN;
  return {
    left,
    top: MARGIN.top,
    width: Math.max(80, width - left - right),
    height: Math.max(40, height - MARGIN.top - MARGIN.bottom),
  };
}

function FieldLines(props: CanvasProps & { field: string; scales: Scales }) {
  const { field, scales, span, draft, limits, looks, active, timeline, revisions } = props;
  const look = looks.get(field) as Look;
  const isActive = field === active;
  const curve = curveIn(draft, field);
  const free = limits.firstFree;
  const before = stretchesIn(timeline, span.from, span.to).flatMap(([from, to, revision]) => {
    const was = curveIn(revisions.get(revision) ?? EMPTY, field);
    return was === undefined ? [] : [{ from, to, was, isSame: sameCurve(was, curve) }];
  });
  return (
    <g style={{ color: look.colour }}>
      {before.map(({ from, to, was, isSame }) => (
        <g key={from}>
          <path
            d={pathOf(was, from, Math.min(to, free), scales)}
            className={isActive ? classes.pastActive : classes.line}
          />
          {!isSame && <path d={pathOf(was, Math.max(from, free), to, scales)} className={classes.was} />}
        </g>
      ))}
      {curve && (
        <path
          d={pathOf(curve, Math.max(span.from, limits.firstFree), span.to, scales)}
          className={isActive ? classes.lineActive : classes.line}
          strokeDasharray={look.dash}
        />
      )}
    </g>
  );
}

const EMPTY: Schedule = {
  weights: {},
  microbatches: [{ at: 0, value: 0, shape: "step" }],
  seq_len: [{ at: 0, value: 0, shape: "step" }],
  retired: [],
};

/** Names at the right ends of the curves. */
function Labels({
  fields,
  draft,
  span,
  scales,
  frame,
  looks,
  active,
  onActivate,
}: CanvasProps & { scales: Scales; frame: Frame }) {
  const shown = fields.filter((field) => curveIn(draft, field) !== undefined);
  const ends = shown.map((field) => scales.y(valueAt(curveIn(draft, field) as Curve, span.to)));
  const placed = spread(ends, 17, frame.top, frame.top + frame.height);
  const x = frame.left + frame.width;
  return shown.map((field, i) => (
    <g key={field} className={classes.endLabel} data-active={field === active || undefined}>
      <path
        d={`M${x + 1},${ends[i]}L${x + 10},${placed[i]}`}
        style={{ stroke: looks.get(field)?.colour }}
        className={classes.leader}
      />
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the list beside the picture does the same by keyboard */}
      <text
        x={x + 14}
        y={(placed[i] as number) + 4}
        onClick={() => onActivate(field)}
        style={{ fill: looks.get(field)?.colour }}
      >
        {shortened(fieldLabel(field))}
      </text>
    </g>
  ));
}

function shortened(name: string): string {
  return name.length > 14 ? `${name.slice(0, 6)}…${name.slice(-7)}` : name;
}

function PlaceMark({ place, scales }: { place: Place; scales: Scales }) {
  return <circle className={classes.placeMark} cx={scales.x(place.at)} cy={scales.y(place.value)} r={7} />;
}

interface PlaceMenuProps {
  place: Place;
  scales: Scales;
  frame: Frame;
  curve: Curve | undefined;
  selected: readonly KnotRef[];
  onAdd: () => void;
  onMove: (ref: KnotRef) => void;
  onClose: () => void;
}

/** What a single click on an empty place offers: the way without dragging. */
function PlaceMenu({ place, scales, frame, curve, selected, onAdd, onMove, onClose }: PlaceMenuProps) {
  const left = Math.min(scales.x(place.at) + 12, frame.left + frame.width - 190);
  const top = Math.max(frame.top, Math.min(scales.y(place.value) - 16, frame.top + frame.height - 96));
  const isTaken = curve?.some((knot) => knot.at === place.at) ?? false;
  const [only] = selected;
  const act = (does: () => void) => () => {
    does();
    onClose();
  };
  return (
    <div className={classes.placeMenu} style={{ left, top }} role="dialog" aria-label="At this place">
      <span className="lm-num">
        step {whole(place.at)}, {weight(place.value)}
      </span>
      <Button size="compact-xs" onClick={act(onAdd)} disabled={isTaken}>
        Add knot here
      </Button>
      {selected.length === 1 && only !== undefined && (
        <Button size="compact-xs" variant="default" onClick={act(() => onMove(only))}>
          Move the selected knot here
        </Button>
      )}
      <Button size="compact-xs" variant="subtle" onClick={onClose}>
        Close
      </Button>
    </div>
  );
}

export function isSelected(selected: readonly KnotRef[], ref: KnotRef): boolean {
  return selected.some((each) => sameRef(each, ref));
}
