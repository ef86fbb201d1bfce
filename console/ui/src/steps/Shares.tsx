import { useState } from "react";
import { type Column, DataTable, formatCount, formatShare, formatSigned, Panel } from "../ui";
import { sharesOf } from "./batch";
import type { StepView } from "./query";

type Share = StepView["shares"][number];

const COLUMNS: Column<Share>[] = [
  { key: "source", title: "Source", cell: (share) => share.source },
  { key: "weight", title: "Share", isNumber: true, cell: (share) => formatShare(share.weight) },
  { key: "tokens", title: "In the step", isNumber: true, cell: (share) => formatCount(share.step_tokens) },
  {
    key: "credit",
    title: "Credit",
    isNumber: true,
    cell: (share) => (share.credit === null ? <span className="lm-muted">not kept</span> : formatSigned(share.credit)),
  },
];

const PAGE = 40;

/** The mixture in force: the sources of this batch first. */
export function Shares({ view }: { view: StepView }) {
  const [most, setMost] = useState(0);
  const { here, others } = sharesOf(view);
  return (
    <Panel title={`Shares in force, revision ${view.revision}`} aside={<span>{view.shares.length} sources</span>}>
      <DataTable
        caption="Shares of the sources"
        columns={COLUMNS}
        rows={[...here, ...others.slice(0, most)]}
        rowKey={(share) => share.source}
        onMore={most < others.length ? () => setMost(most + PAGE) : undefined}
        maxHeight="60vh"
      />
    </Panel>
  );
}
