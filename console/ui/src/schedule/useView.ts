import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { tokens, whole } from "../curves/format";
import type { Schedule } from "../curves/schedule";
import { type Grid, gridFor } from "../curves/snap";
import type { Tick } from "./Axes";
import { frameOf } from "./Canvas";
import { fieldsToDraw, MOST_DRAWN } from "./drawing";
import type { ScheduleView } from "./queries";
import { type ScheduleSearch, validateSearch } from "./search";
import { stepsToDraw, topSources } from "./stack";
import { curvesOf, type Multiples, multipleOf, type Span, ticks, tokenTicks, topOf, wholeSpan } from "./view";

export const CANVAS_PX = 320;

export interface Shown {
  readonly search: ScheduleSearch;
  readonly setSearch: (change: Partial<ScheduleSearch>) => void;
  readonly whole: Span;
  readonly span: Span;
  /** The step that shares are told for. */
  readonly at: number;
  readonly steps_X: readonly number[];
  readonly ticks: readonly Tick[];
  readonly largest: string | undefined;
  readonly fieldsFor: (active: string) => string[];
  readonly topFor: (active: string) => number;
  readonly gridFor: (active: string) => Grid;
}

/** What is in view, as the address has it. */
export function useView(
  view: ScheduleView,
  newest: Schedule,
  draft: Schedule,
  firstFree: number,
  width: number,
): Shown {
  const search = validateSearch(useSearch({ strict: false }) as Record<string, unknown>);
  const navigate = useNavigate();
  const setSearch = useCallback(
    (change: Partial<ScheduleSearch>) =>
      void navigate({
        to: ".",
        search: (before: object) => ({ ...before, ...change }),
        replace: true,
        resetScroll: false,
      }),
    [navigate],
  );
  const whole_ = useWhole(view, newest, draft, firstFree);
  const span = useMemo(
    () => (search.from !== undefined && search.to !== undefined ? { from: search.from, to: search.to } : whole_),
    [search.from, search.to, whole_],
  );
  const steps_X = useMemo(() => stepsToDraw(draft, span.from, span.to), [draft, span]);
  const rankedAt_X = useMemo(
    () => (draft === newest ? steps_X : stepsToDraw(newest, span.from, span.to)),
    [draft, newest, span, steps_X],
  );
  const isTokens = search.x === "tokens";
  const axis = useTicks(newest, span, view, width, isTokens);
  const largest = useMemo(() => topSources(newest, rankedAt_X, MOST_DRAWN), [newest, rankedAt_X]);
  const multiples = multiplesOf(view);
  const fieldsFor = (active: string) => fieldsToDraw(largest, active);
  const topFor = (active: string) => {
    const fields = fieldsFor(active);
    return topOf([...curvesOf(draft, fields), ...curvesOf(newest, fields)], span);
  };
  const size = frameOf(width, CANVAS_PX);
  return {
    search,
    setSearch,
    whole: whole_,
    span,
    at: search.at ?? firstFree,
    steps_X,
    ticks: axis,
    largest: largest[0],
    fieldsFor,
    topFor,
    gridFor: (active) => gridFor({ ...span, top: topFor(active) }, size, multipleOf(active, multiples)),
  };
}

/** The whole run stays what it was while knots and the present move within it: the picture must not jump. */
function useWhole(view: ScheduleView, newest: Schedule, draft: Schedule, firstFree: number): Span {
  const end = view.end_step ?? view.until_steps;
  const { to } = wholeSpan([newest, draft], firstFree, end);
  return useMemo(() => ({ from: 0, to }), [to]);
}

function multiplesOf(view: ScheduleView): Multiples {
  return { g: view.g_multiple, c: view.c_multiple, rows: view.rows };
}

function useTicks(schedule: Schedule, span: Span, view: ScheduleView, width: number, isTokens: boolean): Tick[] {
  const { g_multiple: g, c_multiple: c, rows } = view;
  return useMemo(() => {
    const count = Math.max(2, Math.floor(width / 130));
    if (!isTokens)
      return ticks(span.from, span.to, count)
        .filter(Number.isInteger)
        .map((step) => ({ step, label: whole(step) }));
    const marks = tokenTicks(schedule, span, { g, c, rows }, count);
    return marks.map((mark) => ({ step: mark.step, label: `${tokens(mark.tokens)} tok` }));
  }, [schedule, span, g, c, rows, width, isTokens]);
}
