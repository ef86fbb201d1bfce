import { css, type Domain, domain, palette, shade } from "./color";
import { isSilent, type Ranks } from "./columns";
import type { Grid } from "./grid";
import { bands, type History, worstOf } from "./history";

/** What the canvas draws: cells with a value, hatched where nothing reports, empty where there is nothing. */
export interface Picture {
  columns: number;
  rows: number;
  /** One a cell; NaN: not known. */
  value: Float64Array;
  /** One a cell: 0 empty, 1 known or not, 2 does not report. */
  kind: Uint8Array;
  /** The rank that a cell stands for; -1 where it is empty. */
  rank: Int32Array;
  domain: Domain;
  columnTitle: string;
  rowTitle: string;
  rowName: (row: number) => string;
  columnName: (column: number) => string;
}

export const EMPTY = 0;
export const PLAIN = 1;
export const HATCHED = 2;
const MOST_LINES = 512;

/** One metric of the ranks, each in its place of a grid. */
export function gridPicture(grid: Grid, ranks: Ranks, value: Float64Array): Picture {
  const size = grid.columns * grid.rows;
  const cells = new Float64Array(size).fill(Number.NaN);
  const kind = new Uint8Array(size);
  grid.at.forEach((index, cell) => {
    if (index < 0) return;
    cells[cell] = value[index] as number;
    kind[cell] = isSilent(ranks.state[index]) ? HATCHED : PLAIN;
  });
  return { ...grid, value: cells, kind, rank: grid.at, domain: domain(value) };
}

/** One metric of the ranks over time, the newest sample right; neighbours share a line where there are many. */
export function timePicture(history: History, ranks: Ranks): Picture {
  const { size, lines } = bands(history.ranks, MOST_LINES);
  const columns = Math.max(history.length, 1);
  const value = new Float64Array(columns * lines).fill(Number.NaN);
  const kind = new Uint8Array(columns * lines).fill(PLAIN);
  const rank = new Int32Array(columns * lines);
  for (let line = 0; line < lines; line++) {
    const members = Math.min(size, history.ranks - line * size);
    const isHatched = Array.from({ length: members }, (_, i) => ranks.state[line * size + i]).every(isSilent);
    for (let sample = 0; sample < columns; sample++) {
      const cell = line * columns + sample;
      value[cell] = history.length ? worstOf(history, line, size, sample) : Number.NaN;
      if (isHatched) kind[cell] = HATCHED;
      rank[cell] = line * size;
    }
  }
  const newest = history.length ? history.time(history.length - 1) : 0;
  const names = {
    columnTitle: "time",
    rowTitle: "rank",
    rowName: (row: number) => bandName(row * size, Math.min((row + 1) * size, history.ranks) - 1),
    columnName: (column: number) => `${Math.round(newest - history.time(column))} s ago`,
  };
  return { columns, rows: lines, value, kind, rank, domain: domain(value), ...names };
}

const bandName = (first: number, last: number): string => (first === last ? `rank ${first}` : `ranks ${first}–${last}`);

/** Pixels of the cells, one a cell, and the places that are hatched over them. */
export function pixels(picture: Picture, isDark: boolean): { data: Uint32Array; hatched: number[] } {
  const colours = palette(isDark);
  const [unknown, hatched] = [isDark ? 0xff2e2620 : 0xffeae6e2, [] as number[]];
  const data = new Uint32Array(picture.columns * picture.rows);
  picture.kind.forEach((kind, cell) => {
    if (kind === EMPTY) return;
    const value = picture.value[cell] as number;
    data[cell] = Number.isNaN(value) ? unknown : (colours[shade(value, picture.domain)] as number);
    if (kind === HATCHED) hatched.push(cell);
  });
  return { data, hatched };
}

/** CSS of the legend's bar. */
export const gradient = (isDark: boolean): string =>
  `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map((at) => css(isDark, at)).join(", ")})`;

/** Size of a cell so that the picture fits a box: whole pixels, not taller than wide lines need. */
export function cellSize(picture: Picture, width: number): { width: number; height: number } {
  const across = Math.max(2, Math.min(112, Math.floor(width / picture.columns)));
  const down =
    picture.rows > 384
      ? 1
      : picture.rows > 192
        ? 2
        : picture.rows > 96
          ? 4
          : picture.rows > 40
            ? 8
            : Math.min(36, Math.max(14, across));
  return { width: across, height: down };
}
