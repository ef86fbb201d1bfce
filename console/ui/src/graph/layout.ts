import { columnsOf } from "./layers";
import { type Flow, type Stage, split } from "./model";

export interface Point {
  x: number;
  y: number;
}

export const NODE_WIDTH = 232;
export const NODE_HEIGHT = 96;
const LOW_HEIGHT = 62;

/** A stage without bars is lower. */
export const heightOf = (stage: Stage): number =>
  split(stage) === null && stage.queue_fill === null ? LOW_HEIGHT : NODE_HEIGHT;

/** What a layout depends on: who is there and what is joined, no number of it. */
export const topology = (stages: readonly Stage[], flows: readonly Flow[]): string =>
  `${stages.map((stage) => stage.id).join("|")}#${flows.map((flow) => `${flow.from}>${flow.to}`).join("|")}`;

/** Corner of each stage, from left to right along the flow. */
export function layout(stages: readonly Stage[], flows: readonly Flow[]): Map<string, Point> {
  const ids = stages.map(({ id }) => id);
  return placed(columnsOf(ids, flows));
}

const GAP = 16;
const BETWEEN = 96;
const WITHIN = 28;
const MOST_ROWS = 8;

/** Columns from left to right; a tall one is broken into several, all centred on one line. */
function placed(columns: readonly string[][]): Map<string, Point> {
  const places = new Map<string, Point>();
  let left = 0;
  for (const members of columns) {
    const parts = Math.ceil(members.length / MOST_ROWS);
    const rows = Math.ceil(members.length / parts);
    members.forEach((id, i) => {
      const count = Math.min(rows, members.length - Math.floor(i / rows) * rows);
      const y = ((i % rows) - (count - 1) / 2) * (NODE_HEIGHT + GAP);
      places.set(id, { x: left + Math.floor(i / rows) * (NODE_WIDTH + WITHIN), y });
    });
    left += parts * (NODE_WIDTH + WITHIN) - WITHIN + BETWEEN;
  }
  return places;
}

/** A layout that is made anew only when the topology changes: a refresh of numbers moves nothing. */
export class StableLayout {
  private key = "";
  private places = new Map<string, Point>();

  of(stages: readonly Stage[], flows: readonly Flow[]): Map<string, Point> {
    const key = topology(stages, flows);
    if (key !== this.key) {
      this.places = layout(stages, flows);
      this.key = key;
    }
    return this.places;
  }
}
