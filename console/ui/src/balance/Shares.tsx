import { useMemo } from "react";
import { ChartWithTable, type Column, DataTable, formatShare, formatSigned, NameField, Panel } from "../ui";
import classes from "./balance.module.css";
import { Plot } from "./Plot";
import type { Balance } from "./query";
import { lines } from "./series";
import { type Share, shares, widest } from "./shares";

const signed = (value: number | null): string => (value === null ? "not known" : formatSigned(value));

/** Planned against served share of each source, over the window. */
export function SourceShares({ view, onSource }: { view: Balance; onSource: (source: string) => void }) {
  const found = useMemo(() => {
    const { source, planned, served, error_tokens } = view.shares;
    return shares(source, planned, served, error_tokens, view.steps.num_tokens);
  }, [view]);
  const most = widest(found);
  return (
    <ChartWithTable
      title="Planned and served shares"
      aside={
        <span className={classes.said}>
          the {found.length} greatest of {view.sources.length} sources
        </span>
      }
      chart={
        <ul className={classes.shares}>
          {found.map((share) => (
            <ShareBar key={share.source} share={share} most={most} onSource={onSource} />
          ))}
        </ul>
      }
      table={<DataTable caption="Shares by source" columns={COLUMNS} rows={found} rowKey={(share) => share.source} />}
    />
  );
}

const COLUMNS: Column<Share>[] = [
  { key: "source", title: "Source", cell: (share) => share.source },
  { key: "planned", title: "Planned", isNumber: true, cell: (share) => formatShare(share.planned) },
  { key: "served", title: "Served", isNumber: true, cell: (share) => formatShare(share.served) },
  { key: "error", title: "Tokens off since step 0", isNumber: true, cell: (share) => signed(share.error) },
];

interface ShareBarProps {
  share: Share;
  most: number;
  onSource: (source: string) => void;
}

function ShareBar({ share, most, onSource }: ShareBarProps) {
  const part = (value: number) => `${most > 0 ? (100 * value) / most : 0}%`;
  return (
    <li>
      <button type="button" className={classes.share} onClick={() => onSource(share.source)}>
        <span className={classes.shareName}>{share.source}</span>
        <span className={classes.shareBar}>
          <span data-part="served" style={{ width: part(share.served) }} />
          <span data-part="planned" style={{ left: part(share.planned) }} />
        </span>
        <span className={classes.shareText}>
          {formatShare(share.served)}
          <span className="lm-muted"> of {formatShare(share.planned)}</span>
        </span>
        <span className={classes.shareError}>{signed(share.error)}</span>
      </button>
    </li>
  );
}

interface SourceOverTimeProps {
  view: Balance;
  source: string;
  onSource: (source: string) => void;
}

const SERIES = [
  { label: "served", colour: "--lm-series-0", width: 1.5 },
  { label: "planned", colour: "--lm-series-1", dash: [6, 4], width: 1.75 },
];

/** One source's planned and served share, step by step. */
export function SourceOverTime({ view, source, onSource }: SourceOverTimeProps) {
  const index = view.shares.source.indexOf(source);
  const drawn = useMemo(() => {
    const [served, planned] = [view.shares.served[index] ?? [], view.shares.planned[index] ?? []];
    return lines(view.steps.step, [served, planned], view.steps.generation);
  }, [view, index]);
  const names = useMemo(() => [...new Set([...view.shares.source, ...view.sources])], [view]);
  const choice = <NameField label="Source" names={names} value={source} onChange={onSource} />;
  return (
    <Panel title="One source, step by step" aside={choice}>
      <Plot
        label={`Planned and served share of ${source} by step`}
        lines={drawn}
        series={SERIES}
        height={230}
        format={formatShare}
        within={[0, 0]}
      />
      {index < 0 && <p className={classes.note}>Reading the shares of {source}.</p>}
    </Panel>
  );
}
