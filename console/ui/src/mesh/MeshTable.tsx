import { useState } from "react";
import { type Column, DataTable, StatusMark } from "../ui";
import { isSilent, METRICS, type Metric, type MetricKey, type Ranks, values, worstFirst } from "./columns";
import { STATES, told } from "./words";

const PAGE = 100;

interface MeshTableProps {
  ranks: Ranks;
  metric: Metric;
  onMetric: (key: MetricKey) => void;
  selected?: number;
  onSelect: (rank: number) => void;
}

/** The same numbers as the map, the worst first: ranks that do not report, then by the metric. */
export function MeshTable({ ranks, metric, onMetric, selected, onSelect }: MeshTableProps) {
  const [most, setMost] = useState(PAGE);
  const order = [...worstFirst(values(ranks, metric.key))];
  const sorted = [...order.filter((i) => isSilent(ranks.state[i])), ...order.filter((i) => !isSilent(ranks.state[i]))];
  return (
    <DataTable
      caption={`Ranks by ${metric.label.toLowerCase()}, the worst first`}
      columns={columns(ranks, onSelect)}
      rows={sorted.slice(0, most)}
      rowKey={(index) => ranks.rank[index] as number}
      sort={{ key: metric.key, isDescending: true }}
      onSort={(key) => onMetric(key as MetricKey)}
      onMore={most < sorted.length ? () => setMost(most + PAGE) : undefined}
      isSelected={(index) => ranks.rank[index] === selected}
      maxHeight="65vh"
    />
  );
}

function columns(ranks: Ranks, onSelect: (rank: number) => void): Column<number>[] {
  return [
    {
      key: "rank",
      title: "Rank",
      isNumber: true,
      cell: (i) => (
        <button type="button" className="lm-pick" onClick={() => onSelect(ranks.rank[i] as number)}>
          {ranks.rank[i]}
        </button>
      ),
    },
    { key: "state", title: "State", cell: (i) => <State state={ranks.state[i] ?? "unknown"} /> },
    { key: "host", title: "Host", cell: (i) => ranks.host[i] ?? <span className="lm-muted">not said</span> },
    ...Object.keys(ranks.coords).map((axis) => ({
      key: axis,
      title: axis,
      isNumber: true,
      cell: (i: number) => ranks.coords[axis]?.[i],
    })),
    ...METRICS.map((metric) => ({
      key: metric.key,
      title: metric.label,
      isNumber: true,
      isSortable: true,
      cell: (i: number) => told(metric, ranks[metric.key][i]) ?? <span className="lm-muted">not known</span>,
    })),
  ];
}

function State({ state }: { state: string }) {
  const mark = STATES[state] ?? { tone: "unknown" as const, word: state };
  return <StatusMark tone={mark.tone} word={mark.word} />;
}
