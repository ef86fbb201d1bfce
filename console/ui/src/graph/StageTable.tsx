import { type Column, DataTable, StatusMark } from "../ui";
import { kinds, type Stage, statusOf } from "./model";
import { MARKS, rateOf, shareOf } from "./words";

const dim = (text: string | null) => text ?? <span className="lm-muted">not known</span>;

const COLUMNS: Column<Stage>[] = [
  { key: "label", title: "Stage", cell: (stage) => stage.label },
  { key: "kind", title: "Kind", cell: (stage) => stage.kind },
  {
    key: "status",
    title: "Status",
    cell: (stage) => {
      const { tone, word } = MARKS[statusOf(stage)];
      return <StatusMark tone={tone} word={word} />;
    },
  },
  { key: "busy", title: "Busy", isNumber: true, cell: (stage) => dim(shareOf(stage.busy)) },
  { key: "blocked", title: "Held up", isNumber: true, cell: (stage) => dim(shareOf(stage.blocked)) },
  { key: "idle", title: "Idle", isNumber: true, cell: (stage) => dim(shareOf(stage.idle)) },
  { key: "queue", title: "Queue", isNumber: true, cell: (stage) => dim(shareOf(stage.queue_fill)) },
  { key: "rate", title: "Passes on", isNumber: true, cell: (stage) => dim(rateOf(stage)) },
  { key: "errors", title: "Errors", isNumber: true, cell: (stage) => stage.errors },
  { key: "members", title: "Members", isNumber: true, cell: (stage) => stage.members },
  { key: "detail", title: "", cell: (stage) => <span className="lm-muted">{stage.detail}</span> },
];

/** The picture's numbers as a table. */
export function StageTable({ stages, selected }: { stages: Stage[]; selected?: string }) {
  const rows = kinds(stages).flatMap((kind) => kind.stages);
  return (
    <DataTable
      caption="Stages of the data plane"
      columns={COLUMNS}
      rows={rows}
      rowKey={(stage) => stage.id}
      isSelected={(stage) => stage.id === selected}
      maxHeight="70vh"
    />
  );
}
