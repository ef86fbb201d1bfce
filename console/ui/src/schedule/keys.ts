import { type Curve, SHAPES, type Shape } from "../curves/curve";
import { type Limits, roomOf } from "../curves/edit";
import type { Grid } from "../curves/snap";

/** What a key does to a knot that has the focus. */
export type KeyEdit =
  | { do: "nudge"; by: { at: number; value: number } }
  | { do: "place"; at: number }
  | { do: "remove" }
  | { do: "go"; by: 1 | -1 }
  | { do: "shape"; shape: Shape };

export interface Pressed {
  readonly key: string;
  readonly shiftKey: boolean;
  readonly altKey: boolean;
}

const COARSE = 10;

/**
 * Arrows move by the grid, with Shift by ten of it, with Alt by the least: one step, a tenth of the grid's value.
 *
 * Home and End go as far as the neighbours let it; Delete removes; [ and ] go to the neighbouring knots; s changes the
 * shape of the way to the next one. Null: the key is not ours.
 */
export function keyEdit(pressed: Pressed, curve: Curve, at: number, limits: Limits, grid: Grid): KeyEdit | null {
  const factor = pressed.shiftKey ? COARSE : 1;
  const step = (pressed.altKey ? 1 : grid.step) * factor;
  const value = (pressed.altKey ? grid.value / 10 : grid.value) * factor;
  switch (pressed.key) {
    case "ArrowUp":
      return { do: "nudge", by: { at: 0, value } };
    case "ArrowDown":
      return { do: "nudge", by: { at: 0, value: -value } };
    case "ArrowRight":
      return { do: "nudge", by: { at: step, value: 0 } };
    case "ArrowLeft":
      return { do: "nudge", by: { at: -step, value: 0 } };
    case "Home":
      return { do: "place", at: roomOf(curve, at, limits)[0] };
    case "End":
      return { do: "place", at: roomOf(curve, at, limits)[1] };
    case "Delete":
    case "Backspace":
      return { do: "remove" };
    case "[":
      return { do: "go", by: -1 };
    case "]":
      return { do: "go", by: 1 };
    case "s":
      return { do: "shape", shape: nextShape(curve.find((knot) => knot.at === at)?.shape ?? "step") };
    default:
      return null;
  }
}

export function nextShape(shape: Shape): Shape {
  return SHAPES[(SHAPES.indexOf(shape) + 1) % SHAPES.length] as Shape;
}
