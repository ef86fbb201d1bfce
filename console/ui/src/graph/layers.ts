import type { Flow } from "./model";

const SWEEPS = 4;

/**
 * Columns along the flow: everybody right of all that flows to them, and whoever begins a flow just left of its first
 * end. Within a column those stand together that have the same neighbours: each is put at the mean place of its
 * neighbours, from left to right and back (Sugiyama, Tagawa, Toda 1981). Whoever is on a circle comes where it closes.
 */
export function columnsOf(ids: readonly string[], flows: readonly Flow[]): string[][] {
  const known = new Set(ids);
  const edges = flows.filter(({ from, to }) => known.has(from) && known.has(to) && from !== to);
  const [before, after] = [neighbours(ids, edges, "to", "from"), neighbours(ids, edges, "from", "to")];
  const depth = depths(ids, before, after);
  const deepest = Math.max(-1, ...depth.values());
  const columns = Array.from({ length: deepest + 1 }, (_, at) => ids.filter((id) => depth.get(id) === at));
  const filled = columns.filter((column) => column.length > 0);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const isForth = sweep % 2 === 0;
    const order = isForth ? filled : [...filled].reverse();
    for (let i = 1; i < order.length; i++) settle(order, i, isForth ? before : after);
  }
  return filled;
}

type Neighbours = ReadonlyMap<string, string[]>;

function neighbours(ids: readonly string[], edges: readonly Flow[], of: "from" | "to", to: "from" | "to"): Neighbours {
  const found = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const edge of edges) found.get(edge[of])?.push(edge[to]);
  return found;
}

/** The longest way to each that meets nobody twice. */
function depths(ids: readonly string[], before: Neighbours, after: Neighbours): Map<string, number> {
  const depth = new Map<string, number>();
  const open = new Map(ids.map((id) => [id, before.get(id)?.length ?? 0]));
  const queue = ids.filter((id) => open.get(id) === 0);
  const queued = new Set(queue);
  const add = (id: string) => void (queued.add(id) && queue.push(id));
  for (let next = 0; next < ids.length; next++) {
    if (next === queue.length)
      ids
        .filter((id) => !queued.has(id))
        .slice(0, 1)
        .forEach(add); // all left are on circles
    const id = queue[next] ?? "";
    const at = depth.get(id) ?? 0;
    depth.set(id, at);
    for (const to of after.get(id) ?? []) {
      open.set(to, (open.get(to) ?? 0) - 1);
      if (queued.has(to)) continue;
      depth.set(to, Math.max(depth.get(to) ?? 0, at + 1));
      if (open.get(to) === 0) add(to);
    }
  }
  for (const id of ids) {
    const ends = after.get(id) ?? [];
    if (before.get(id)?.length || ends.length === 0) continue;
    depth.set(id, Math.max(0, Math.min(...ends.map((to) => depth.get(to) ?? 1)) - 1));
  }
  return depth;
}

/** Order a column by the mean place of its neighbours; whoever has none keeps its own. */
function settle(columns: string[][], index: number, of: Neighbours): void {
  const column = columns[index] ?? [];
  const place = new Map<string, number>();
  for (const each of columns) {
    if (each === column) break;
    each.forEach((id, i) => void place.set(id, (i + 0.5) / each.length));
  }
  const mean = (id: string, i: number): number => {
    const found = (of.get(id) ?? []).flatMap((each) => place.get(each) ?? []);
    return found.length ? found.reduce((sum, at) => sum + at, 0) / found.length : (i + 0.5) / column.length;
  };
  const means = new Map(column.map((id, i) => [id, mean(id, i)]));
  column.sort((a, b) => (means.get(a) ?? 0) - (means.get(b) ?? 0));
}
