import { whole } from "../curves/format";

/** Why nothing of a schedule can change any more; empty: it can. */
export function overReason(endStep: number | null, firstFree: number): string {
  if (endStep === null || firstFree < endStep) return "";
  return `The run ends before step ${whole(endStep)} and all its steps are bound: nothing can change any more`;
}
