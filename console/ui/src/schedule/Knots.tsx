import { type KeyboardEvent, type PointerEvent, type RefObject, useRef } from "react";
import type { Curve, Knot } from "../curves/curve";
import { isPast, type KnotRef } from "../curves/edit";
import { curveIn, fieldLabel } from "../curves/schedule";
import { type CanvasProps, isSelected, placeOf } from "./Canvas";
import type { Frame, Scales } from "./drawing";
import { keyEdit } from "./keys";
import classes from "./schedule.module.css";

type KnotsProps = CanvasProps & {
  frame: Frame;
  scales: Scales;
  svg: RefObject<SVGSVGElement | null>;
  onTouched: () => void;
};

/** The knots of all curves that are drawn; those of the selected one are sliders. */
export function Knots(props: KnotsProps) {
  const others = props.fields.filter((field) => field !== props.active);
  return (
    <>
      {others.map((field) => (
        <QuietKnots key={field} {...props} field={field} />
      ))}
      <ActiveKnots key={props.active} {...props} />
    </>
  );
}

function QuietKnots(props: KnotsProps & { field: string }) {
  const { field, scales, span, looks, limits } = props;
  const seen = (curveIn(props.draft, field) ?? []).filter((knot) => isSeen(knot, span) && !isPast(knot, limits));
  const press = (event: PointerEvent, knot: Knot) => {
    props.onActivate(field);
    const ref = { field, at: knot.at };
    props.dispatch(event.shiftKey ? { type: "toggle", ref } : { type: "select", refs: [ref] });
  };
  return seen.map((knot) => (
    <g key={knot.at} className={classes.quietKnot} style={{ color: looks.get(field)?.colour }}>
      <circle
        cx={scales.x(knot.at)}
        cy={scales.y(knot.value)}
        r={isSelected(props.selected, { field, at: knot.at }) ? 6 : 3.5}
      />
      <circle
        className={classes.target}
        cx={scales.x(knot.at)}
        cy={scales.y(knot.value)}
        r={12}
        onPointerDown={(event) => press(event, knot)}
      />
    </g>
  ));
}

function ActiveKnots(props: KnotsProps) {
  const { active, draft, span, scales, looks } = props;
  const curve = curveIn(draft, active) ?? [];
  const group = useRef<SVGGElement>(null);
  const go = (from: number, by: 1 | -1, isMore: boolean) => {
    const next = curve[from + by];
    if (next === undefined) return;
    const ref = { field: active, at: next.at };
    props.dispatch(isMore ? { type: "select", refs: [...props.selected, ref] } : { type: "select", refs: [ref] });
    group.current?.querySelector<SVGGElement>(`[data-index="${from + by}"]`)?.focus();
  };
  return (
    <g ref={group} style={{ color: looks.get(active)?.colour }}>
      {curve.map((knot, index) =>
        isSeen(knot, span) ? (
          <SliderKnot
            // biome-ignore lint/suspicious/noArrayIndexKey: a knot keeps its place among its neighbours, and so the focus
            key={index}
            {...props}
            knot={knot}
            curve={curve}
            index={index}
            x={scales.x(knot.at)}
            y={scales.y(knot.value)}
            onGo={(by, isMore) => go(index, by, isMore)}
          />
        ) : null,
      )}
    </g>
  );
}

type SliderKnotProps = KnotsProps & {
  knot: Knot;
  curve: Curve;
  index: number;
  x: number;
  y: number;
  onGo: (by: 1 | -1, isMore: boolean) => void;
};

function SliderKnot(props: SliderKnotProps) {
  const { knot, active, limits, canEdit, index, x, y, top, selected } = props;
  const ref: KnotRef = { field: active, at: knot.at };
  const isFixed = isPast(knot, limits) || !canEdit;
  const isOn = isSelected(selected, ref);
  const drag = useDrag(props, ref, isFixed);
  const press = (event: KeyboardEvent) => pressed(event, props, ref, isFixed);
  return (
    <g
      className={classes.knot}
      role="slider"
      tabIndex={0}
      aria-label={`${fieldLabel(active)}, knot ${index + 1} of ${props.curve.length}`}
      aria-valuemin={0}
      aria-valuemax={Math.max(top, knot.value)}
      aria-valuenow={knot.value}
      aria-valuetext={`${props.valueText(active, knot)}${isPast(knot, limits) ? ", in the past" : ""}`}
      aria-disabled={isFixed || undefined}
      data-index={index}
      data-at={knot.at}
      data-on={isOn || undefined}
      data-fixed={isFixed || undefined}
      onKeyDown={press}
      onFocus={() => {
        if (!isOn) props.dispatch({ type: "select", refs: [ref] });
      }}
      {...drag}
    >
      <circle className={classes.target} cx={x} cy={y} r={13} />
      <circle className={classes.ring} cx={x} cy={y} r={11} />
      {knot.shape === "step" ? (
        <rect className={classes.dot} x={x - 5} y={y - 5} width={10} height={10} rx={1.5} />
      ) : (
        <circle className={classes.dot} cx={x} cy={y} r={5.5} />
      )}
    </g>
  );
}

/** Dragging: the pointer is captured, moves snap, and the whole drag is one entry of the history. */
function useDrag(props: SliderKnotProps, ref: KnotRef, isFixed: boolean) {
  const isHeld = useRef(false);
  const down = (event: PointerEvent<SVGGElement>) => {
    if (event.button !== 0) return;
    props.onTouched();
    if (event.shiftKey) {
      event.preventDefault();
      props.dispatch({ type: "toggle", ref });
      return;
    }
    if (!isSelected(props.selected, ref)) props.dispatch({ type: "select", refs: [ref] });
    if (isFixed) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    isHeld.current = true;
  };
  const move = (event: PointerEvent<SVGGElement>) => {
    if (!isHeld.current) return;
    const to = placeOf(event, props.svg.current, props.scales, props.grid, event.altKey);
    if (props.selected.length > 1) {
      const by = { at: to.at - props.knot.at, value: to.value - props.knot.value };
      if (by.at || by.value) props.dispatch({ type: "nudge", by });
    } else props.dispatch({ type: "place", ref, ...to, isDrag: true });
  };
  const up = () => {
    if (isHeld.current) props.dispatch({ type: "settle" });
    isHeld.current = false;
  };
  return { onPointerDown: down, onPointerMove: move, onPointerUp: up, onPointerCancel: up };
}

function pressed(event: KeyboardEvent, props: SliderKnotProps, ref: KnotRef, isFixed: boolean): void {
  if (event.ctrlKey || event.metaKey) return;
  const key = event.key === "{" ? "[" : event.key === "}" ? "]" : event.key;
  const found = keyEdit(
    { key, shiftKey: event.shiftKey, altKey: event.altKey },
    props.curve,
    ref.at,
    props.limits,
    props.grid,
  );
  if (found === null) return;
  event.preventDefault();
  event.stopPropagation();
  props.onTouched();
  if (found.do === "go") props.onGo(found.by, event.shiftKey);
  else if (isFixed) return;
  else if (found.do === "nudge") props.dispatch({ type: "nudge", by: found.by });
  else if (found.do === "place") props.dispatch({ type: "place", ref, at: found.at });
  else if (found.do === "shape") props.dispatch({ type: "shape", ref, shape: found.shape });
  else {
    props.onGo(props.index > 0 ? -1 : 1, true);
    props.dispatch({ type: "select", refs: [ref] });
    props.dispatch({ type: "remove" });
  }
}

function isSeen(knot: Knot, span: { from: number; to: number }): boolean {
  return knot.at >= span.from && knot.at <= span.to;
}
