import { type ReactNode, useState } from "react";
import { Panel } from "./Page";
import { Segmented } from "./Segmented";

interface ChartWithTableProps {
  title: string;
  aside?: ReactNode;
  chart: ReactNode;
  /** The same numbers. */
  table: ReactNode;
  className?: string;
}

/** A chart, or the same numbers as a table, as one chooses. */
export function ChartWithTable({ title, aside, chart, table, className }: ChartWithTableProps) {
  const [view, setView] = useState<"chart" | "table">("chart");
  const toggle = (
    <Segmented
      aria-label={`${title}: chart or table`}
      value={view}
      onChange={setView}
      data={[
        { value: "chart", label: "Chart" },
        { value: "table", label: "Table" },
      ]}
    />
  );
  return (
    <Panel
      title={title}
      className={className}
      aside={
        <>
          {aside}
          {toggle}
        </>
      }
    >
      {view === "chart" ? chart : table}
    </Panel>
  );
}
