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

/** Ranks by host: one line a host, in the order in which hosts first come. */
export function hostGrid(ranks: RankColumns): Grid {
  const hosts: string[] = [];
  const lineOf = new Map<string, number>();
  const filled: number[] = [];
  const line = ranks.host.map((host) => {
    const name = host ?? "no host known";
    let row = lineOf.get(name);
    if (row === undefined) {
      row = hosts.push(name) - 1;
      lineOf.set(name, row);
    }
    const slot = filled[row] ?? 0;
    filled[row] = slot + 1;
    return { row, slot };
  });
  const columns = Math.max(1, ...filled);
  const cell = Int32Array.from(line, ({ row, slot }) => row * columns + slot);
  return {
    columns,
    rows: hosts.length,
    cell,
    at: inverse(cell, hosts.length * columns),
    columnTitle: "rank on its host",
    rowTitle: "host",
    rowName: (row) => hosts[row] ?? "",
    columnName: (column) => String(column),
  };
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
  const clamp = (value: number, size: number) => Math.min(Math.max(value, 0), size - 1);
  const to = clamp(row + by[0], grid.rows) * grid.columns + clamp(column + by[1], grid.columns);
  return (grid.at[to] ?? -1) >= 0 ? to : from;
}
