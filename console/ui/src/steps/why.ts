import { whole } from "../curves/format";

/** What of a piece says why it is in its step. */
export interface Origin {
  source: string;
  drawn_at: number;
  waited: number;
  credit_before: number | null;
  credit_after: number | null;
  verdict: string;
  reason: string;
  first_token: number;
  num_tokens: number;
  sample_tokens: number;
}

/** Why a piece is here, as sentences: the revision, its source's credit, how long it was deferred, its verdict. */
export function why(piece: Origin, step: number, revision: number): string[] {
  return [mixture(piece, revision), credit(piece), deferral(piece, step), part(piece), verdict(piece)].filter(Boolean);
}

const mixture = (piece: Origin, revision: number): string => `Revision ${revision} has ${piece.source} in the mixture.`;

function credit({ source, credit_before: before, credit_after: after }: Origin): string {
  if (before === null) return "What its source was owed then is not kept for this step.";
  const owed =
    before > 0
      ? `${source} was owed ${count(before)}`
      : before < 0
        ? `${source} was ahead by ${count(-before)}`
        : `${source} was owed nothing`;
  if (after === null) return `${owed} when it was drawn.`;
  const left = after > 0 ? `${count(after)} owed` : after < 0 ? `${count(-after)} ahead` : "even";
  return `${owed} before the draw, ${left} after it.`;
}

function deferral({ drawn_at: drawn, waited }: Origin, step: number): string {
  if (drawn < 0) return "When it was drawn is not kept for this step.";
  if (waited === 0) return `Drawn for step ${whole(step)} and placed at once.`;
  return `Drawn at step ${whole(drawn)} and deferred for ${waited} ${waited === 1 ? "step" : "steps"}.`;
}

function part({ first_token: first, num_tokens: num, sample_tokens: all }: Origin): string {
  if (num < 0 || all < 0 || num === all) return "";
  return `Tokens ${whole(first)} to ${whole(first + num)} of ${whole(all)}: the sample was cut.`;
}

const verdict = ({ verdict: kind, reason }: Origin): string =>
  kind === "masked" ? `Served without loss: ${reason || "its content could not be used"}.` : "";

const count = (tokens: number): string => `${whole(tokens)} ${tokens === 1 ? "token" : "tokens"}`;
