import { type Curve, constant, type Shape } from "../curves/curve";
import {
  addKnot,
  canEdit,
  type KnotRef,
  knotOf,
  type Limits,
  moveKnot,
  moveKnots,
  removeKnot,
  renormaliseOthers,
  sameRef,
  shapeKnot,
  tidy,
  wholeAt,
} from "../curves/edit";
import { begin, type History, push, redo, settle, undo } from "../curves/history";
import { curveIn, type Schedule, withCurve, withRetired } from "../curves/schedule";

/** What a person edits: a draft, the revision it was made from, and what is selected and locked. */
export interface EditorState {
  readonly history: History<Schedule>;
  /** Number and schedule of the revision that the draft was made from. */
  readonly base: number;
  readonly baseSchedule: Schedule;
  readonly selected: readonly KnotRef[];
  readonly locked: ReadonlySet<string>;
  readonly limits: Limits;
}

export type EditorAction =
  | { type: "load"; schedule: Schedule; base: number; baseSchedule: Schedule }
  | { type: "limits"; limits: Limits }
  | { type: "select"; refs: readonly KnotRef[] }
  | { type: "toggle"; ref: KnotRef }
  | { type: "nudge"; by: { at: number; value: number } }
  | { type: "place"; ref: KnotRef; at?: number; value?: number; isDrag?: boolean }
  | { type: "settle" }
  | { type: "add"; field: string; at: number; value?: number }
  | { type: "remove" }
  | { type: "shape"; ref: KnotRef; shape: Shape }
  | { type: "renormalise"; source: string; at: number }
  | { type: "retire"; source: string; isRetired: boolean }
  | { type: "lock"; source: string }
  | { type: "replace"; schedule: Schedule }
  | { type: "undo" }
  | { type: "redo" };

/** Begin with a draft, or with the revision itself. */
export function editorOf(base: number, baseSchedule: Schedule, limits: Limits, draft?: Schedule): EditorState {
  const history = begin(draft ?? baseSchedule);
  return { history, base, baseSchedule, selected: [], locked: new Set(), limits };
}

/** The one way in which an editor's state changes. Edits that are not allowed change nothing. */
export function edit(state: EditorState, action: EditorAction): EditorState {
  switch (action.type) {
    case "load":
      return { ...state, ...action, history: begin(action.schedule), selected: [] };
    case "limits":
      return { ...state, limits: action.limits };
    case "select":
      return { ...state, selected: action.refs, history: settle(state.history) };
    case "toggle":
      return { ...state, selected: toggled(state.selected, action.ref) };
    case "nudge":
      return nudged(state, action.by);
    case "place":
      return placed(state, action);
    case "settle":
      return { ...state, history: settle(state.history) };
    case "add":
      return added(state, action);
    case "remove":
      return removed(state);
    case "lock":
      return { ...state, locked: toggledName(state.locked, action.source) };
    case "undo":
      return reselected({ ...state, history: undo(state.history) });
    case "redo":
      return reselected({ ...state, history: redo(state.history) });
    default:
      return changed(state, scheduleAfter(state, action));
  }
}

/** The draft. */
export function draftOf(state: EditorState): Schedule {
  return state.history.now;
}

type Simple = Extract<EditorAction, { type: "shape" | "renormalise" | "retire" | "replace" }>;

function scheduleAfter(state: EditorState, action: Simple): Schedule {
  const draft = draftOf(state);
  switch (action.type) {
    case "shape":
      return withChanged(state, action.ref.field, (curve) =>
        shapeKnot(curve, action.ref.at, action.shape, state.limits),
      );
    case "renormalise":
      return renormalised(state, action.source, action.at);
    case "retire":
      return withRetired(draft, action.source, action.isRetired);
    case "replace":
      return action.schedule;
  }
}

/** The whole that the others are brought back to is what the revision in force has at that step. */
function renormalised(state: EditorState, source: string, at: number): Schedule {
  const whole = Object.keys(state.baseSchedule.weights).length > 0 ? baseWhole(state, at) : 1;
  return renormaliseOthers(draftOf(state), source, at, state.limits, { whole, locked: state.locked });
}

function baseWhole(state: EditorState, at: number): number {
  return wholeAt(state.baseSchedule, at) || 1;
}

function placed(state: EditorState, action: Extract<EditorAction, { type: "place" }>): EditorState {
  const { ref } = action;
  const before = curveIn(draftOf(state), ref.field);
  const index = before?.findIndex((knot) => knot.at === ref.at) ?? -1;
  const schedule = withChanged(state, ref.field, (curve) => moveKnot(curve, ref.at, action, state.limits));
  const moved = curveIn(schedule, ref.field)?.[index];
  const kind = action.isDrag ? `drag ${ref.field}` : null;
  const after = changed(state, schedule, kind);
  if (moved === undefined) return after;
  const refs = state.selected.map((each) => (sameRef(each, ref) ? { ...ref, at: moved.at } : each));
  return { ...after, selected: refs };
}

function nudged(state: EditorState, by: { at: number; value: number }): EditorState {
  const { selected, limits, locked } = state;
  const draft = draftOf(state);
  if (selected.some((ref) => !canEdit(draft, ref.field, locked))) return state;
  const [only] = selected;
  if (selected.length === 1 && only !== undefined) {
    const knot = knotOf(draft, only);
    if (knot === undefined) return state;
    const to = { at: knot.at + by.at, value: tidy(knot.value + by.value) };
    return { ...placed(state, { type: "place", ref: only, ...to, isDrag: true }) };
  }
  const { schedule, refs } = moveKnots(draft, selected, by, limits);
  return { ...changed(state, schedule, "nudge"), selected: schedule === draft ? selected : refs };
}

function added(state: EditorState, action: Extract<EditorAction, { type: "add" }>): EditorState {
  const { field, at, value } = action;
  const schedule = withChanged(state, field, (curve) => addKnot(curve, at, state.limits, value), constant(0));
  const ref = { field, at: Math.round(at) };
  const after = changed(state, schedule);
  return knotOf(schedule, ref) === undefined ? after : { ...after, selected: [ref] };
}

function removed(state: EditorState): EditorState {
  const allowed = state.selected.filter((ref) => canEdit(draftOf(state), ref.field, state.locked));
  const schedule = allowed.reduce((now, ref) => {
    const curve = curveIn(now, ref.field);
    return curve ? withCurve(now, ref.field, removeKnot(curve, ref.at, state.limits)) : now;
  }, draftOf(state));
  return reselected(changed(state, schedule));
}

function withChanged(state: EditorState, field: string, change: (curve: Curve) => Curve, otherwise?: Curve): Schedule {
  const draft = draftOf(state);
  const curve = curveIn(draft, field) ?? otherwise;
  if (curve === undefined || !canEdit(draft, field, state.locked)) return draft;
  const after = change(curve);
  return after === curve ? draft : withCurve(draft, field, after);
}

function changed(state: EditorState, schedule: Schedule, kind: string | null = null): EditorState {
  return schedule === draftOf(state) ? state : { ...state, history: push(state.history, schedule, kind) };
}

/** Without the selected knots that are not there any more. */
function reselected(state: EditorState): EditorState {
  const selected = state.selected.filter((ref) => knotOf(draftOf(state), ref) !== undefined);
  return selected.length === state.selected.length ? state : { ...state, selected };
}

function toggled(refs: readonly KnotRef[], ref: KnotRef): readonly KnotRef[] {
  return refs.some((each) => sameRef(each, ref)) ? refs.filter((each) => !sameRef(each, ref)) : [...refs, ref];
}

function toggledName(names: ReadonlySet<string>, name: string): ReadonlySet<string> {
  const after = new Set(names);
  if (!after.delete(name)) after.add(name);
  return after;
}
