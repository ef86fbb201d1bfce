import { clamp } from "../ui/clamp";
import { byName } from "../ui/order";

/** A stage of the data plane, or several of a group that are shown as one. Numbers are null where they are not known. */
export interface Stage {
  id: string;
  kind: string;
  label: string;
  /** What can be expanded to have it in parts. */
  group: string | null;
  members: number;
  queue_fill: number | null;
  busy: number | null;
  blocked: number | null;
  idle: number | null;
  rate: number | null;
  errors: number;
  /** As the planner judges it. */
  state: string;
  detail: string;
}

export interface Flow {
  from: string;
  to: string;
  rate: number | null;
}

export type StageStatus =
  | "failing"
  | "silent"
  | "slow"
  | "blocked"
  | "busy"
  | "flowing"
  | "idle"
  | "leaving"
  | "unknown";

const HOT = 0.8;
const HELD = 0.3;
const TOLD = new Set<string>(["failing", "silent", "slow", "leaving"]);

/** How a stage is, by what hurts most: what the planner says of it, errors, being held up by the next stage, having no
 * time left, or nothing. */
export function statusOf(stage: Stage): StageStatus {
  if (TOLD.has(stage.state)) return stage.state as StageStatus;
  if (stage.errors > 0) return "failing";
  if ((stage.blocked ?? 0) >= HELD) return "blocked";
  if ((stage.busy ?? 0) >= HOT) return "busy";
  if (stage.busy === null && stage.rate === null && stage.queue_fill === null) return "unknown";
  return (stage.rate ?? 0) > 0 || (stage.busy ?? 0) > 0 ? "flowing" : "idle";
}

const ORDER: StageStatus[] = ["failing", "silent", "slow", "blocked", "busy", "leaving", "flowing", "idle", "unknown"];

/** The stages, those that hurt first: by status, then by how much of their time they are blocked, then busy. */
export function worstFirst<S extends Stage>(stages: readonly S[]): S[] {
  const load = (stage: Stage) => (stage.blocked ?? 0) * 2 + (stage.busy ?? 0);
  return [...stages].sort((a, b) => {
    const rank = ORDER.indexOf(statusOf(a)) - ORDER.indexOf(statusOf(b));
    return rank || b.errors - a.errors || load(b) - load(a) || byName(a.label, b.label);
  });
}

/** busy, blocked and idle as parts of one bar, together at most 1; null where none is known. */
export function split(stage: Stage): { busy: number; blocked: number; idle: number } | null {
  if (stage.busy === null && stage.blocked === null && stage.idle === null) return null;
  const [busy, blocked] = [clamp(stage.busy ?? 0, 0, 1), clamp(stage.blocked ?? 0, 0, 1)];
  const over = Math.max(1, busy + blocked);
  return { busy: busy / over, blocked: blocked / over, idle: Math.max(0, 1 - (busy + blocked) / over) };
}

/** Width in px of each flow, by the root of its share of the greatest: [1, 8]; 1 where the rate is not known. */
export function widths(flows: readonly Flow[]): number[] {
  const greatest = Math.max(...flows.map((flow) => flow.rate ?? 0), 0);
  return flows.map((flow) => (greatest > 0 && flow.rate ? 1 + 7 * Math.sqrt(flow.rate / greatest) : 1));
}

export interface Kind {
  kind: string;
  label: string;
  stages: Stage[];
}

/** Kinds along the flow, and what people call several of them. */
const KINDS: [string, string][] = [
  ["planner", "Planner"],
  ["source-group", "Sources"],
  ["loader", "Loaders"],
  ["constructor", "Constructors"],
  ["rank-group", "Ranks"],
];

/** The stages by kind, along the flow, the worst stage of each first. */
export function kinds(stages: readonly Stage[]): Kind[] {
  const named = new Set(KINDS.map(([kind]) => kind));
  const others = [...new Set(stages.map((stage) => stage.kind))].filter((kind) => !named.has(kind));
  return [...KINDS, ...others.map((kind): [string, string] => [kind, kind])]
    .map(([kind, label]) => ({
      kind,
      label,
      stages: worstFirst(stages.filter((stage) => stage.kind === kind)),
    }))
    .filter((found) => found.stages.length > 0);
}

/** What the flows of a stage are, so that the others can step back: the stage, its neighbours and what joins them. */
export function around(selected: string, flows: readonly Flow[]): Set<string> {
  const near = new Set([selected]);
  for (const flow of flows) {
    if (flow.from === selected) near.add(flow.to);
    if (flow.to === selected) near.add(flow.from);
  }
  return near;
}
