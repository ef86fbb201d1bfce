import { type Picture, pixels } from "./picture";
import { themed } from "./useBox";

export interface Look {
  cell: { width: number; height: number };
  isDark: boolean;
  /** Room for the names of lines, left. */
  gutter: number;
  /** Cells with a ring; -1: none. */
  selected: number;
  focus: number;
}

const FOOT = 22;
const LINE = 13;

/** Draw a picture: cells as one scaled image, hatching, names of lines, rings. */
export function paint(canvas: HTMLCanvasElement, picture: Picture, look: Look): void {
  const { cell, gutter } = look;
  const [width, height] = [gutter + picture.columns * cell.width + 2, picture.rows * cell.height + FOOT];
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(scale, scale);
  paintCells(context, picture, look);
  if (cell.width >= 6 && cell.height >= 6) paintGaps(context, picture, look);
  paintNames(context, picture, look);
  ring(context, picture, look, look.selected, themed("--lm-text"), 2);
  ring(context, picture, look, look.focus, themed("--lm-accent"), 3);
}

function paintCells(context: CanvasRenderingContext2D, picture: Picture, look: Look): void {
  const { data, hatched } = pixels(picture, look.isDark);
  const small = new OffscreenCanvas(picture.columns, picture.rows);
  const image = new ImageData(new Uint8ClampedArray(data.buffer as ArrayBuffer), picture.columns, picture.rows);
  small.getContext("2d")?.putImageData(image, 0, 0);
  const { cell, gutter } = look;
  context.imageSmoothingEnabled = false;
  context.drawImage(small, gutter, 0, picture.columns * cell.width, picture.rows * cell.height);
  const pattern = context.createPattern(hatch(look.isDark), "repeat");
  if (pattern) context.fillStyle = pattern;
  for (const at of hatched) context.fillRect(...corner(picture, look, at), cell.width, cell.height);
}

/** Grey diagonals: does not report. */
export function hatch(isDark: boolean): OffscreenCanvas {
  const tile = new OffscreenCanvas(6, 6);
  const context = tile.getContext("2d");
  if (!context) return tile;
  context.fillStyle = isDark ? "#20262e" : "#eef0f2";
  context.fillRect(0, 0, 6, 6);
  context.strokeStyle = isDark ? "#8593a1" : "#6b7885";
  context.lineWidth = 1.4;
  context.beginPath();
  for (const shift of [-6, 0, 6]) {
    context.moveTo(shift - 1, 7);
    context.lineTo(shift + 7, -1);
  }
  context.stroke();
  return tile;
}

function paintGaps(context: CanvasRenderingContext2D, picture: Picture, { cell, gutter }: Look): void {
  context.fillStyle = themed("--lm-surface");
  const [width, height] = [picture.columns * cell.width, picture.rows * cell.height];
  for (let column = 1; column <= picture.columns; column++)
    context.fillRect(gutter + column * cell.width - 1, 0, 1, height);
  for (let row = 1; row <= picture.rows; row++) context.fillRect(gutter, row * cell.height - 1, width, 1);
}

function paintNames(context: CanvasRenderingContext2D, picture: Picture, { cell, gutter }: Look): void {
  context.fillStyle = themed("--lm-muted");
  context.font = `11px ${themed("--lm-sans")}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  const every = Math.max(1, Math.ceil(LINE / cell.height));
  for (let row = 0; row < picture.rows; row += every) {
    context.fillText(
      clipped(picture.rowName(row)),
      gutter - 8,
      Math.max((row + 0.5) * cell.height, LINE / 2),
      gutter - 10,
    );
  }
  const foot = picture.rows * cell.height + FOOT / 2 + 2;
  context.textAlign = "left";
  context.fillText(`${picture.columnTitle}: ${picture.columnName(0)}`, gutter, foot);
  if (picture.columns * cell.width < 220) return;
  context.textAlign = "right";
  context.fillText(picture.columnName(picture.columns - 1), gutter + picture.columns * cell.width, foot);
}

const clipped = (name: string): string => (name.length > 20 ? `${name.slice(0, 9)}…${name.slice(-10)}` : name);

function ring(
  context: CanvasRenderingContext2D,
  picture: Picture,
  look: Look,
  at: number,
  colour: string,
  width: number,
): void {
  if (at < 0) return;
  const [x, y] = corner(picture, look, at);
  context.strokeStyle = themed("--lm-surface");
  context.lineWidth = width + 2;
  context.strokeRect(x - 1, y - 1, look.cell.width + 1, look.cell.height + 1);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.strokeRect(x - 1, y - 1, look.cell.width + 1, look.cell.height + 1);
}

function corner(picture: Picture, { cell, gutter }: Look, at: number): [number, number] {
  return [gutter + (at % picture.columns) * cell.width, Math.floor(at / picture.columns) * cell.height];
}
