import type { Model } from "../api/client";
import {
  type Column,
  formatAge,
  formatCount,
  formatExact,
  formatSeconds,
  formatShare,
  PlainButton,
  StatusMark,
  toneOf,
} from "../ui";
import classes from "./sources.module.css";

type Row = Model<"SourceRow">;

const told = (value: number | null, format: (value: number) => string, missing: string) =>
  value === null ? <span className="lm-muted">{missing}</span> : format(value);

interface Drafted {
  /** Why one may not edit; empty: one may. */
  refusal: string;
  /** What the draft retires; undefined: there is none, the run's state is what would be changed. */
  retired: ReadonlySet<string> | undefined;
  /** Puts "retire", or its opposite, into the draft. */
  onRetire: (source: string, isRetired: boolean) => void;
}

/** The table's columns. */
export function columnsOf(drafted: Drafted): Column<Row>[] {
  const cell = (row: Row) => <Retire row={row} {...drafted} />;
  return [...STATES, { key: "act", title: "In your draft", cell }, ...NUMBERS];
}

function Retire({ row, refusal, retired, onRetire }: Drafted & { row: Row }) {
  const isInRun = row.state === "retired";
  const isRetired = retired?.has(row.name) ?? isInRun;
  const word = isRetired ? "Take up again" : "Retire";
  return (
    <>
      <PlainButton
        refusal={refusal}
        label={`${word} ${row.name} in your draft`}
        onClick={() => onRetire(row.name, !isRetired)}
      >
        {`${word}…`}
      </PlainButton>
      {isRetired !== isInRun && <div className="lm-muted">{isRetired ? "retired there" : "taken up there"}</div>}
    </>
  );
}

function Name({ row }: { row: Row }) {
  return (
    <>
      <span className={classes.name}>{row.name}</span>
      {row.last_error && (
        <details className={classes.error}>
          <summary>
            last error{row.last_error_s !== null && ` ${formatAge(row.last_error_s)}`}: {row.last_error.split("\n")[0]}
          </summary>
          <pre>{row.last_error}</pre>
        </details>
      )}
    </>
  );
}

function Verdicts({ row }: { row: Row }) {
  const counts = Object.entries(row.verdicts).filter(([, count]) => count > 0);
  if (counts.length === 0) return <span className="lm-muted">none</span>;
  return counts.map(([verdict, count]) => `${formatExact(count)} ${verdict.replace("_", " ")}`).join(", ");
}

const STATES: Column<Row>[] = [
  { key: "name", title: "Source", cell: (row) => <Name row={row} /> },
  { key: "state", title: "State", cell: (row) => <StatusMark tone={toneOf(row.state)} word={row.state} /> },
];

const NUMBERS: Column<Row>[] = [
  {
    key: "share",
    title: "Weight / served",
    isNumber: true,
    cell: (row) => (
      <>
        {formatShare(row.weight)}
        <br />
        <span className="lm-muted">{row.share === null ? "nothing served" : formatShare(row.share)}</span>
      </>
    ),
  },
  {
    key: "tokens",
    title: "Tokens / epochs",
    isNumber: true,
    cell: (row) => (
      <>
        {told(row.tokens, formatCount, "not known")}
        <br />
        <span className="lm-muted">{row.epochs === null ? "epoch not known" : `${row.epochs.toFixed(2)} epochs`}</span>
      </>
    ),
  },
  { key: "rows", title: "Rows", isNumber: true, cell: (row) => told(row.rows, formatCount, "not known") },
  {
    key: "rate",
    title: "Rate",
    isNumber: true,
    cell: (row) =>
      row.rate === null ? (
        <span className="lm-muted">not known</span>
      ) : (
        <>
          {formatCount(row.rate)}
          <span className="lm-unit">tokens/s</span>
        </>
      ),
  },
  {
    key: "read",
    title: "Read p50 / p99",
    isNumber: true,
    cell: (row) => (
      <>
        {told(row.read_p50_ms, (ms) => formatSeconds(ms / 1000), "not told")}
        <br />
        {row.read_p99_ms !== null && <span className="lm-muted">{formatSeconds(row.read_p99_ms / 1000)}</span>}
      </>
    ),
  },
  {
    key: "errors",
    title: "Errors / retries",
    isNumber: true,
    cell: (row) => (
      <>
        {told(row.errors, formatExact, "not told")}
        <br />
        {row.retries !== null && <span className="lm-muted">{formatExact(row.retries)}</span>}
      </>
    ),
  },
  { key: "verdicts", title: "Left out", cell: (row) => <Verdicts row={row} /> },
  {
    key: "loader",
    title: "Loader",
    cell: (row) => row.loader?.replace(/^grpc[^:]*:\/\//, "") || <span className="lm-muted">none</span>,
  },
];
