import { sourceOf } from "../curves/schedule";

/** Whether a revision is in force, was, will be, or never came to be: another one began before it. */
export type Standing = "in force" | "later" | "earlier" | "overtaken";

/** Where a revision stands, from the stretches of steps that the planner says. `step`: the next that ranks get. */
export function standingOf(
  revision: number,
  stretches: readonly { from_step: number; revision: number }[],
  step: number,
): Standing {
  const index = stretches.findIndex((each) => each.revision === revision);
  const own = stretches[index];
  if (own === undefined) return "overtaken";
  const next = stretches[index + 1];
  if (own.from_step > step && index > 0) return "later";
  return next !== undefined && next.from_step <= step ? "earlier" : "in force";
}

/** What a revision changed, in a few words: "web, code", "12 sources, C". */
export function changedText(changed: readonly string[]): string {
  const sources = changed.map((field) => sourceOf(field)).filter((name) => name !== null);
  const sizes = changed.filter((field) => sourceOf(field) === null).map((field) => (field === "seq_len" ? "C" : "G"));
  const named = sources.length > 3 ? [`${sources.length} sources`] : sources;
  return [...named, ...sizes].join(", ") || "nothing";
}
