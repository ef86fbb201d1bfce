import { api, call, ifMatch, type Model } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import { type Schedule, sameSchedule, toJson } from "../curves/schedule";
import { scheduleOf } from "./queries";

/** What a person publishes: a schedule, an old revision's, or the mixture as it is. */
export type Change = { is: "publish"; schedule: Schedule } | { is: "restore"; revision: number } | { is: "hold" };

export interface PublishForm {
  readonly message: string;
  /** Null: the first step that can still be changed, whichever that is by then. */
  readonly atStep: number | null;
}

/** How a publish ended. */
export type Outcome =
  | { is: "revision"; revision: number; fromStep: number }
  | { is: "scheduled"; number: number; atStep: number }
  /** The newest revision is another one; the draft is kept. */
  | { is: "moved"; newest: number }
  /** The step cannot be changed any more; `firstFree` can. */
  | { is: "too late"; firstFree: number; problem: Problem }
  | { is: "refused"; problem: Problem };

/** Publish over revision `base`. Never throws. */
export async function publish(
  run: string,
  base: number,
  change: Change,
  form: PublishForm,
  author: string,
): Promise<Outcome> {
  try {
    return outcomeOf(await send(run, base, change, form));
  } catch (error) {
    return refusalOf(asProblem(error), change, form, author);
  }
}

function send(run: string, base: number, change: Change, form: PublishForm): Promise<Model<"PublishReply">> {
  const body = { message: form.message, at_step: form.atStep };
  const header = { "if-match": ifMatch(base) };
  if (change.is === "hold") {
    return call(api.POST("/api/v1/runs/{run}/schedule/hold", { params: { path: { run }, header }, body }));
  }
  if (change.is === "restore") {
    const path = { run, revision: change.revision };
    return call(api.POST("/api/v1/runs/{run}/revisions/{revision}/restore", { params: { path, header }, body }));
  }
  const schedule = toJson(change.schedule) as Model<"ScheduleSpec">;
  return call(
    api.POST("/api/v1/runs/{run}/revisions", { params: { path: { run }, header }, body: { ...body, schedule } }),
  );
}

/** What a reply says came of it. */
export function outcomeOf(reply: Model<"PublishReply">): Outcome {
  if (reply.revision) {
    return { is: "revision", revision: reply.revision.revision, fromStep: reply.revision.from_step };
  }
  return { is: "scheduled", number: reply.scheduled?.number ?? -1, atStep: reply.scheduled?.at_step ?? -1 };
}

/**
 * What a refusal means. A 412 whose newest revision is this very change is no refusal: the answer to an earlier try
 * was lost on its way.
 */
export function refusalOf(problem: Problem, change: Change, form: PublishForm, author: string): Outcome {
  if (problem.status === 412) {
    const newest = problem.details.revision as Model<"RevisionView"> | undefined;
    if (newest && isOwn(newest, change, form, author)) {
      return { is: "revision", revision: newest.revision, fromStep: newest.from_step };
    }
    return { is: "moved", newest: newest?.revision ?? Number(problem.details.current) };
  }
  const firstFree = problem.details.first_free;
  if (problem.status === 409 && typeof firstFree === "number") return { is: "too late", firstFree, problem };
  return { is: "refused", problem };
}

function isOwn(newest: Model<"RevisionView">, change: Change, form: PublishForm, author: string): boolean {
  const isTold = newest.author === author && newest.message === form.message;
  return isTold && change.is === "publish" && sameSchedule(scheduleOf(newest), change.schedule);
}
