import { clamp } from "../ui/clamp";
import type { RankColumns } from "./columns";

/** Where each rank lies on the heat map, and what the lines of it are called. */
export interface Grid {
  columns: number;
  rows: number;
  /** Place (row * columns + column) of each rank, in the order of the columns' lists. */
  cell: Int32Array;
  /** Index of the rank in a place; -1 where there is none. */
  at: Int32Array;
  /** Names of the lines. */
  columnTitle: string;
  rowTitle: string;
  rowName: (row: number) => string;
  columnName: (column: number) => string;
}

export interface Axis {
  name: string;
  size: number;
}

const WIDEST = 128;

/** Ranks by their place in the mesh: dp from left to right, the other axes from top to bottom, slowest first. A wide
 * axis is folded into several lines, each a block of its own. */
export function meshGrid(axes: Axis[], ranks: RankColumns): Grid {
  const across = axes.find((axis) => axis.name === "dp") ?? axes.reduce(larger, { name: "rank", size: 1 });
  const down = axes.filter((axis) => axis !== across && axis.size > 1);
  const columns = folded(across.size);
  const folds = Math.ceil(across.size / columns);
  const lines = down.reduce((product, axis) => product * axis.size, 1);
  const cell = Int32Array.from(ranks.rank, (_, i) => {
    const along = ranks.coords[across.name]?.[i] ?? 0;
    const line = down.reduce((place, axis) => place * axis.size + (ranks.coords[axis.name]?.[i] ?? 0), 0);
    return (line * folds + Math.floor(along / columns)) * columns + (along % columns);
  });
  return {
    columns,
    rows: lines * folds,
    cell,
    at: inverse(cell, lines * folds * columns),
    columnTitle: across.name,
    rowTitle: down.map((axis) => axis.name).join(", ") || "all",
    rowName: (row) =>
      lineName(down, Math.floor(row / folds), folds > 1 ? `${across.name} ${(row % folds) * columns}+` : ""),
    columnName: (column) => (folds > 1 ? `${column} of ${columns}` : String(column)),
  };
}

/** Ranks by host, in the order in which hosts first come: as many hosts side by side as fit a line. */
export function hostGrid(ranks: RankColumns): Grid {
  const hosts: string[] = [];
  const number = new Map<string, number>();
  const filled: number[] = [];
  const slots = ranks.host.map((name) => {
    const host = numberOf(name ?? "no host known", number, hosts);
    const slot = filled[host] ?? 0;
    filled[host] = slot + 1;
    return { host, slot };
  });
  const perHost = Math.max(1, ...filled);
  const aLine = hosts.length > MOST_LINES ? Math.max(1, Math.floor(WIDEST / perHost)) : 1;
  const columns = perHost * aLine;
  const rows = Math.ceil(hosts.length / aLine);
  const cell = Int32Array.from(slots, ({ host, slot }) => {
    return Math.floor(host / aLine) * columns + (host % aLine) * perHost + slot;
  });
  return {
    columns,
    rows,
    cell,
    at: inverse(cell, rows * columns),
    columnTitle: aLine > 1 ? "rank, host by host" : "rank on its host",
    rowTitle: "host",
    rowName: (row) => `${hosts[row * aLine] ?? ""}${aLine > 1 ? "+" : ""}`,
    columnName: (column) => String(column),
  };
}

const MOST_LINES = 48;

function numberOf(name: string, number: Map<string, number>, hosts: string[]): number {
  const known = number.get(name);
  if (known !== undefined) return known;
  number.set(name, hosts.length);
  return hosts.push(name) - 1;
}

const larger = (a: Axis, b: Axis): Axis => (b.size > a.size ? b : a);

/** The widest divisor that fits, or the widest line at all. */
function folded(size: number): number {
  if (size <= WIDEST) return size;
  for (let width = WIDEST; width >= WIDEST / 2; width--) if (size % width === 0) return width;
  return WIDEST;
}

function inverse(cell: Int32Array, size: number): Int32Array {
  const at = new Int32Array(size).fill(-1);
  cell.forEach((place, i) => {
    at[place] = i;
  });
  return at;
}

function lineName(axes: Axis[], line: number, part: string): string {
  const names: string[] = [];
  for (let i = axes.length - 1, rest = line; i >= 0; i--) {
    const axis = axes[i] as Axis;
    names.unshift(`${axis.name} ${rest % axis.size}`);
    rest = Math.floor(rest / axis.size);
  }
  return [...names, part].filter(Boolean).join(", ");
}

/** Where an arrow key leads from a place; the same place at the border. Empty places are passed over. */
export function moved(grid: Pick<Grid, "columns" | "rows" | "at">, from: number, key: string): number {
  const [row, column] = [Math.floor(from / grid.columns), from % grid.columns];
  const step: Record<string, [number, number]> = {
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    PageUp: [-8, 0],
    PageDown: [8, 0],
    Home: [0, -column],
    End: [0, grid.columns - 1 - column],
  };
  const by = step[key];
  if (!by) return from;
  const at = { row: clamp(row + by[0], 0, grid.rows - 1), column: clamp(column + by[1], 0, grid.columns - 1) };
  const to = at.row * grid.columns + at.column;
  return (grid.at[to] ?? -1) >= 0 ? to : from;
}
