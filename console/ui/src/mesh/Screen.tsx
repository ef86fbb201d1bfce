import { NativeSelect, Skeleton } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { useRun } from "../app/useRun";
import { ChartWithTable, EmptyState, formatExact, formatSeconds, Page, Panel, ProblemNotice, Segmented } from "../ui";
import { isSilent, known, type Metric, type MetricKey, metricOf, summarize, values } from "./columns";
import { hostGrid, meshGrid } from "./grid";
import { HeatMap } from "./HeatMap";
import { Legend } from "./Legend";
import { MeshTable } from "./MeshTable";
import classes from "./mesh.module.css";
import { PlaceTree } from "./PlaceTree";
import { gridPicture, type Picture, timePicture } from "./picture";
import { type Mesh, useHistory, useMesh } from "./query";
import { RankPanel } from "./RankPanel";
import type { MeshSearch } from "./route";
import { placeTree } from "./tree";
import { rankLine, told } from "./words";

const api = getRouteApi("/shell/runs/$run/mesh");

/** All ranks at a glance: where they are, and which of them is not like the others. */
export function Screen() {
  const { run, stream } = useRun();
  const query = useMesh(run, stream);
  const mesh = query.data;
  return (
    <Page title="Mesh" run={run} isWide lead={mesh && <Lead mesh={mesh} />}>
      {query.error && !mesh && <ProblemNotice error={query.error} onRetry={() => void query.refetch()} />}
      {!mesh && !query.error && <Skeleton height={520} radius="md" />}
      {mesh && mesh.ranks.rank.length === 0 && (
        <EmptyState
          title="No rank has joined yet."
          command={`loadmaster fetch ${location.origin} --rank 0 --world-size 1`}
        >
          Ranks are here as soon as all of them have called connect().
        </EmptyState>
      )}
      {mesh && mesh.ranks.rank.length > 0 && <RankMap run={run} mesh={mesh} />}
    </Page>
  );
}

function Lead({ mesh }: { mesh: Mesh }) {
  const silent = mesh.ranks.state.filter(isSilent).length;
  const shape = mesh.axes.map(({ name, size }) => `${name} ${size}`).join(" × ");
  return (
    <>
      <span>{formatExact(mesh.ranks.rank.length)} ranks</span>
      <span>{shape}</span>
      <span>{silent ? `${formatExact(silent)} not reporting` : "all report"}</span>
      {mesh.window_s !== null && (
        <span>
          over {formatSeconds(mesh.window_s)}, {formatExact(mesh.window_steps)} steps
        </span>
      )}
    </>
  );
}

function RankMap({ run, mesh }: { run: string; mesh: Mesh }) {
  const { by = "mesh", metric: wanted = "wait_s", sel } = api.useSearch();
  const navigate = api.useNavigate();
  const change = (next: Partial<MeshSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...next }), replace: true });
  const metric = chosen(mesh, wanted);
  const value = useMemo(() => values(mesh.ranks, metric.key), [mesh.ranks, metric]);
  const picture = usePicture(mesh, metric, value, by);
  const tree = useMemo(() => placeTree(mesh.ranks, value), [mesh.ranks, value]);
  const select = (rank: number | undefined) => change({ sel: rank });
  const silent = mesh.ranks.state.filter(isSilent).length;
  const shared = { ranks: mesh.ranks, metric, selected: sel, onSelect: select };
  return (
    <div className={classes.split} data-panel={sel !== undefined || undefined}>
      <Panel title="Places" className={classes.side}>
        <PlaceTree tree={tree} {...shared} />
      </Panel>
      <ChartWithTable
        title={`${metric.label} of the ranks`}
        className={classes.main}
        aside={<Controls mesh={mesh} metric={metric} by={by} onChange={change} />}
        chart={
          <>
            <Scores metric={metric} value={value} mesh={mesh} />
            <HeatMap
              picture={picture}
              label={`${metric.label}, ${metric.about}. ${summary(metric, value)}`}
              selected={sel}
              onSelect={select}
              describe={(cell) => describe(picture, cell, mesh, metric, by)}
            />
            <Legend metric={metric} domain={picture.domain} silent={silent} />
          </>
        }
        table={<MeshTable {...shared} onMetric={(key) => change({ metric: key })} />}
      />
      {sel !== undefined && (
        <div className={classes.side}>
          <RankPanel run={run} ranks={mesh.ranks} rank={sel} onClose={() => select(undefined)} />
        </div>
      )}
    </div>
  );
}

function usePicture(mesh: Mesh, metric: Metric, value: Float64Array, by: MeshSearch["by"]): Picture {
  const { history, version } = useHistory(mesh, metric.key, by === "time");
  // biome-ignore lint/correctness/useExhaustiveDependencies: a version is a new sample in the same history
  return useMemo(() => {
    if (by === "time") return timePicture(history, mesh.ranks);
    return gridPicture(by === "host" ? hostGrid(mesh.ranks) : meshGrid(mesh.axes, mesh.ranks), mesh.ranks, value);
  }, [by, history, version, mesh, value]);
}

/** The metric of the address, or the first that at least one rank has. */
function chosen(mesh: Mesh, wanted: MetricKey): Metric {
  const there = known(mesh.ranks);
  return (
    there.find((metric) => metric.key === wanted) ?? (wanted === "wait_s" ? there[0] : undefined) ?? metricOf(wanted)
  );
}

interface ControlsProps {
  mesh: Mesh;
  metric: Metric;
  by: NonNullable<MeshSearch["by"]>;
  onChange: (next: Partial<MeshSearch>) => void;
}

function Controls({ mesh, metric, by, onChange }: ControlsProps) {
  const options = [...new Set([...known(mesh.ranks), metric])].map(({ key, label }) => ({ value: key, label }));
  return (
    <>
      <NativeSelect
        aria-label="Metric"
        data={options}
        value={metric.key}
        onChange={(event) => onChange({ metric: event.currentTarget.value as MetricKey })}
        w={150}
      />
      <Segmented
        aria-label="Arrangement of the ranks"
        value={by}
        onChange={(next) => onChange({ by: next as ControlsProps["by"] })}
        data={[
          { value: "mesh", label: "Mesh" },
          { value: "host", label: "Hosts" },
          { value: "time", label: "Time" },
        ]}
      />
    </>
  );
}

function Scores({ metric, value, mesh }: { metric: Metric; value: Float64Array; mesh: Mesh }) {
  const { skew, max, mean } = summarize(value);
  const known = [
    ["cost", mesh.skew.cost, "cost"],
    ["tokens", mesh.skew.tokens, "tokens"],
    ["wait", mesh.skew.wait, "wait_s"],
  ] as const;
  return (
    <dl className={classes.scores}>
      <div>
        <dt>Skew of {metric.label.toLowerCase()}</dt>
        <dd className={classes.score}>{Number.isNaN(skew) ? "even: all are 0" : `${skew.toFixed(2)} × mean`}</dd>
      </div>
      <div>
        <dt>Greatest</dt>
        <dd>{told(metric, max) ?? "not known"}</dd>
      </div>
      <div>
        <dt>Mean</dt>
        <dd>{told(metric, mean) ?? "not known"}</dd>
      </div>
      {known.map(
        ([name, of, key]) =>
          key !== metric.key && (
            <div key={name}>
              <dt>Skew of {name}</dt>
              <dd>{of === null ? <span className="lm-muted">not known</span> : of.toFixed(3)}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

function summary(metric: Metric, value: Float64Array): string {
  const { max, mean, known: count } = summarize(value);
  return `${count} ranks, mean ${told(metric, mean) ?? "not known"}, greatest ${told(metric, max) ?? "not known"}.`;
}

function describe(picture: Picture, cell: number, mesh: Mesh, metric: Metric, by: MeshSearch["by"]): string {
  const rank = picture.rank[cell] ?? -1;
  if (rank < 0) return "";
  const [row, column] = [Math.floor(cell / picture.columns), cell % picture.columns];
  if (by !== "time") return rankLine(mesh.ranks, metric, rank);
  const value = told(metric, picture.value[cell]) ?? "not known";
  return `${picture.rowName(row)}, ${picture.columnName(column)}: ${value}`;
}
