import { Button, Skeleton } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { useRun } from "../app/useRun";
import { ChartWithTable, EmptyState, formatSeconds, Page, Panel, ProblemNotice } from "../ui";
import classes from "./graph.module.css";
import { type Stage, statusOf, worstFirst } from "./model";
import { Picture } from "./Picture";
import { type Graph, useGraph } from "./query";
import type { GraphSearch } from "./route";
import { StagePanel } from "./StagePanel";
import { StageTable } from "./StageTable";
import { StageTree } from "./StageTree";
import { MARKS } from "./words";

const api = getRouteApi("/shell/runs/$run/graph");

/** The data plane on one picture: what flows, what is held up, and by whom. */
export function Screen() {
  const { run, stream } = useRun();
  const { expand } = api.useSearch();
  const query = useGraph(run, stream, expand);
  const graph = query.data;
  return (
    <Page title="Graph" run={run} isWide lead={graph && <Lead graph={graph} />}>
      {query.error && !graph && <ProblemNotice error={query.error} onRetry={() => void query.refetch()} />}
      {!graph && !query.error && <Skeleton height={560} radius="md" />}
      {graph && graph.nodes.length === 0 && (
        <EmptyState title="Nothing is there to draw yet.">Stages are here once a loader or a rank has come.</EmptyState>
      )}
      {graph && graph.nodes.length > 0 && <Plane graph={graph} />}
    </Page>
  );
}

function Lead({ graph }: { graph: Graph }) {
  const worst = worstFirst(graph.nodes)[0] as Stage | undefined;
  const isFine = !worst || !["bad", "warn"].includes(MARKS[statusOf(worst)].tone);
  return (
    <>
      <span>{isFine ? "nothing is held up" : `${worst.label} is ${MARKS[statusOf(worst)].word}`}</span>
      {graph.window_s !== null && <span>means over {formatSeconds(graph.window_s)}</span>}
    </>
  );
}

function Plane({ graph }: { graph: Graph }) {
  const { sel } = api.useSearch();
  const navigate = api.useNavigate();
  const [shows, setShows] = useState(0);
  const change = (next: Partial<GraphSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...next }), replace: true });
  const select = (id: string | undefined) => change({ sel: id });
  const stage = graph.nodes.find((node) => node.id === sel);
  const show = (id: string) => {
    select(id);
    setShows((before) => before + 1);
  };
  return (
    <div className={classes.split} data-panel={stage ? true : undefined}>
      <Panel title="Stages" className={classes.side}>
        <StageTree stages={graph.nodes} selected={sel} onSelect={show} />
      </Panel>
      <ChartWithTable
        title="From sources to ranks"
        className={classes.main}
        aside={<Groups graph={graph} onExpand={(expand) => change({ expand })} />}
        chart={
          <div className={classes.canvas}>
            <Picture stages={graph.nodes} flows={graph.edges} selected={sel} shows={shows} onSelect={select} />
            <Key />
          </div>
        }
        table={<StageTable stages={graph.nodes} selected={sel} />}
      />
      {stage && (
        <StagePanel
          stage={stage}
          expanded={graph.expanded}
          onExpand={(expand) => change({ expand })}
          onClose={() => select(undefined)}
        />
      )}
    </div>
  );
}

/** What is collapsed, and the way back. */
function Groups({ graph, onExpand }: { graph: Graph; onExpand: (group: string | undefined) => void }) {
  if (!graph.expanded) return null;
  return (
    <Button variant="subtle" onClick={() => onExpand(undefined)}>
      Collapse {graph.expanded}
    </Button>
  );
}

function Key() {
  return (
    <ul className={classes.key} aria-label="What the bars mean">
      <li>
        <span data-part="busy" /> busy
      </li>
      <li>
        <span data-part="blocked" /> held up by the next stage
      </li>
      <li>
        <span data-part="idle" /> idle
      </li>
      <li>
        <span data-part="queue" /> queue
      </li>
    </ul>
  );
}
