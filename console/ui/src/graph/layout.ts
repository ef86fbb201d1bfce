import dagre from "@dagrejs/dagre";
import type { Flow, Stage } from "./model";

export interface Point {
  x: number;
  y: number;
}

export const NODE_WIDTH = 232;
export const NODE_HEIGHT = 96;

/** What a layout depends on: who is there and what is joined, no number of it. */
export const topology = (stages: readonly Stage[], flows: readonly Flow[]): string =>
  `${stages.map((stage) => stage.id).join("|")}#${flows.map((flow) => `${flow.from}>${flow.to}`).join("|")}`;

/** Corner of each stage, from left to right along the flow. */
export function layout(stages: readonly Stage[], flows: readonly Flow[]): Map<string, Point> {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 16, ranksep: 96, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const stage of stages) graph.setNode(stage.id, { width: NODE_WIDTH, height: NODE_HEIGHT });
  for (const flow of flows) if (graph.hasNode(flow.from) && graph.hasNode(flow.to)) graph.setEdge(flow.from, flow.to);
  dagre.layout(graph);
  return new Map(stages.map((stage) => [stage.id, corner(graph.node(stage.id))]));
}

const corner = ({ x, y }: Point): Point => ({ x: x - NODE_WIDTH / 2, y: y - NODE_HEIGHT / 2 });

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
