// @vitest-environment node
import { expect, test } from "vitest";
import { curve } from "../curves/testing";
import { keyEdit, nextShape } from "./keys";

const RAMP = curve([0, 1], [200, 2, "linear"], [300, 4]);
const LIMITS = { firstFree: 100, lastStep: 1000 };
const GRID = { step: 20, value: 0.5 };
const press = (key: string, held: "shift" | "alt" | "" = "") =>
  keyEdit({ key, shiftKey: held === "shift", altKey: held === "alt" }, RAMP, 200, LIMITS, GRID);

test("arrows move by the grid, with Shift by ten of it, with Alt finely", () => {
  expect(press("ArrowUp")).toEqual({ do: "nudge", by: { at: 0, value: 0.5 } });
  expect(press("ArrowLeft", "shift")).toEqual({ do: "nudge", by: { at: -200, value: 0 } });
  expect(press("ArrowRight", "alt")).toEqual({ do: "nudge", by: { at: 1, value: 0 } });
  expect(press("ArrowDown", "alt")).toEqual({ do: "nudge", by: { at: 0, value: -0.05 } });
});

test("Home and End go as far as the neighbours and the past let them", () => {
  expect(press("Home")).toEqual({ do: "place", at: 100 });
  expect(press("End")).toEqual({ do: "place", at: 299 });
});

test("the others delete, go on, go back and change the shape; what is not ours is left alone", () => {
  expect(press("Delete")).toEqual({ do: "remove" });
  expect(press("[")).toEqual({ do: "go", by: -1 });
  expect(press("]")).toEqual({ do: "go", by: 1 });
  expect(press("s")).toEqual({ do: "shape", shape: "cosine" });
  expect(press("Tab")).toBeNull();
  expect(["step", "linear", "cosine"].map((shape) => nextShape(shape as "step"))).toEqual(["linear", "cosine", "step"]);
});
