import { Button } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, call, type Model } from "../api/client";
import { tokens, whole } from "../curves/format";
import { type Schedule, toJson } from "../curves/schedule";
import { DataTable, Icon, ProblemNotice } from "../ui";
import { NumberField } from "./NumberField";
import classes from "./schedule.module.css";

type Preview = Model<"PreviewReply">;
type SourcePreview = Model<"SourcePreview">;

interface ImpactProps {
  run: string;
  schedule: Schedule;
  atStep: number | null;
  until: number;
  onUntil: (step: number) => void;
}

/** More passes over text than this have been seen to help little; a person may set another bound. */
const MAX_REPEATS = 4;

/** What the schedule does to each source until some step, as the planner reckons it. */
export function Impact({ run, schedule, atStep, until, onUntil }: ImpactProps) {
  const [isWhole, setWhole] = useState(false);
  const [repeats, setRepeats] = useState(MAX_REPEATS);
  const { data, error, isFetching } = usePreview(run, schedule, atStep, until, repeats);
  const rows = data ? ranked(data) : [];
  return (
    <section aria-label="Effect on the sources">
      <div className={classes.impactHead}>
        <h3 className={classes.dialogTitle}>Effect until step</h3>
        <NumberField
          label="Effect until step"
          value={until}
          show={whole}
          step={100}
          min={(atStep ?? 0) + 1}
          onCommit={onUntil}
        />
        <span>and warn beyond</span>
        <NumberField label="Warn beyond epochs" value={repeats} step={1} min={1} width={44} onCommit={setRepeats} />
        <span>epochs</span>
        {isFetching && <span className="lm-muted">reckoning…</span>}
      </div>
      {error ? <ProblemNotice error={error} /> : null}
      {data && <Warnings warnings={data.warnings} />}
      {data && (
        <DataTable<SourcePreview>
          caption="Tokens and epochs of each source, as things stand and with this change"
          maxHeight="240px"
          rows={isWhole ? rows : rows.slice(0, 12)}
          rowKey={(row) => row.source}
          columns={[
            { key: "source", title: "Source", cell: (row) => row.source },
            {
              key: "before",
              title: "Tokens as things stand",
              isNumber: true,
              cell: (row) => tokens(row.before.tokens),
            },
            { key: "after", title: "With this change", isNumber: true, cell: (row) => tokens(row.after.tokens) },
            { key: "delta", title: "Difference", isNumber: true, cell: (row) => deltaText(row) },
            { key: "epochs", title: "Epochs", isNumber: true, cell: (row) => epochsText(row) },
          ]}
        />
      )}
      {!isWhole && rows.length > 12 && (
        <Button variant="subtle" onClick={() => setWhole(true)}>
          Show all {rows.length} sources
        </Button>
      )}
    </section>
  );
}

function usePreview(run: string, schedule: Schedule, at_step: number | null, until_step: number, max_repeats: number) {
  const body = { schedule: toJson(schedule) as Model<"ScheduleSpec">, at_step, until_step, max_repeats };
  return useQuery({
    queryKey: ["preview", run, body],
    queryFn: ({ signal }) => call(api.POST("/api/v1/runs/{run}/preview", { params: { path: { run } }, body, signal })),
    placeholderData: keepPreviousData,
    gcTime: 10_000,
  });
}

function Warnings({ warnings }: { warnings: readonly string[] }) {
  if (warnings.length === 0) return <p className="lm-muted">No warnings.</p>;
  return (
    <ul className={classes.warnings} aria-label="Warnings">
      {warnings.map((text) => (
        <li key={text}>
          <Icon name="warn" size={14} /> {text}
        </li>
      ))}
    </ul>
  );
}

/** Sources that change most come first. */
function ranked(preview: Preview): SourcePreview[] {
  const change = (row: SourcePreview) => Math.abs(row.after.tokens - row.before.tokens);
  return [...preview.sources].sort((a, b) => change(b) - change(a) || b.after.tokens - a.after.tokens);
}

function deltaText(row: SourcePreview): string {
  const by = row.after.tokens - row.before.tokens;
  if (by === 0) return "0";
  return `${by > 0 ? "+" : "−"}${tokens(Math.abs(by))}`;
}

function epochsText(row: SourcePreview): string {
  if (row.after.epochs === null) return "size not known yet";
  const [before, after] = [row.before.epochs ?? 0, row.after.epochs].map((value) => value.toFixed(2));
  const text = before === after ? (after as string) : `${before} → ${after}`;
  return row.is_estimated ? `about ${text}` : text;
}
