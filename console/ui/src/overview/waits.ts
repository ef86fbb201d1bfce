import type { Model } from "../api/client";

type Waits = Model<"StepWaits">;

/** Steps that the chart shows. */
export const SHOWN_STEPS = 120;

/** Waits with those of a progress event: later word of a step replaces earlier, the last `SHOWN_STEPS` stay. */
export function mergeWaits(known: Waits, heard: Model<"ProgressEvent">["waits"]): Waits {
  const rows = new Map(
    known.step.map((step, index) => [
      step,
      { max: known.max_s[index] ?? null, mean: known.mean_s[index] ?? null, ranks: known.num_ranks[index] ?? 0 },
    ]),
  );
  for (const [step, max, mean] of heard) rows.set(step, { max, mean, ranks: rows.get(step)?.ranks ?? 0 });
  const kept = [...rows].sort(([a], [b]) => a - b).slice(-SHOWN_STEPS);
  return {
    step: kept.map(([step]) => step),
    max_s: kept.map(([, row]) => row.max),
    mean_s: kept.map(([, row]) => row.mean),
    num_ranks: kept.map(([, row]) => row.ranks),
  };
}

/** An overview with what a progress event of its stream and generation says. */
export function withProgress(view: Model<"OverviewView">, event: Model<"ProgressEvent">): Model<"OverviewView"> {
  const { waits, run: _run, stream: _stream, generation: _generation, ...rest } = event;
  return { ...view, ...rest, at: Date.now() / 1000, waits: mergeWaits(view.waits, waits) };
}
