import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { api, call } from "../api/client";
import { feed, useEvents } from "../api/events";
import { useLiveInterval } from "../ui";
import { changed, type MetricKey, type RankChanges, type Ranks, taken, values } from "./columns";
import type { Axis } from "./grid";
import { History } from "./history";

export interface Mesh {
  axes: Axis[];
  ranks: Ranks;
  skew: { cost: number | null; tokens: number | null; wait: number | null };
  window_s: number | null;
  window_steps: number;
  generation: number;
  at: number;
}

const AGAIN_MS = 30_000;

async function readMesh(run: string, stream: string): Promise<Mesh> {
  const view = await call(api.GET("/api/v1/runs/{run}/mesh", { params: { path: { run }, query: { stream } } }));
  return { ...view, ranks: taken(view.ranks) };
}

/** The mesh: read once, then kept by events; costs and ages are read again every half minute. */
export function useMesh(run: string, stream: string) {
  const client = useQueryClient();
  const key = ["mesh", run, stream];
  const query = useQuery({
    queryKey: key,
    queryFn: () => readMesh(run, stream),
    refetchInterval: useLiveInterval(AGAIN_MS),
  });
  useEvents<RankChanges>("ranks", (event) => {
    client.setQueryData<Mesh>(key, (mesh) => mesh && { ...mesh, ranks: changed(mesh.ranks, event) });
  });
  return query;
}

export const DEPTH = 120;
const SAMPLE_MS = 2_000;

/** The last samples of a metric, one every two seconds; begins anew with another metric or mesh.
 *
 * @param isShown whether a new sample is to be drawn. */
export function useHistory(
  mesh: Mesh | undefined,
  metric: MetricKey,
  isShown: boolean,
): { history: History; version: number } {
  const [version, setVersion] = useState(0);
  const size = mesh?.ranks.rank.length ?? 0;
  const generation = mesh?.generation ?? -1;
  // biome-ignore lint/correctness/useExhaustiveDependencies: another metric or generation begins another history
  const history = useMemo(() => new History(size, DEPTH), [size, generation, metric]);
  const latest = useRef(mesh);
  latest.current = mesh;
  useEffect(() => {
    const start = performance.now();
    const sample = () => {
      const ranks = latest.current?.ranks;
      if (ranks?.rank.length === history.ranks && feed.snapshot().status !== "paused") {
        history.push(Math.round((performance.now() - start) / 1000), values(ranks, metric));
        if (isShown) setVersion((before) => before + 1);
      }
    };
    sample();
    const ticker = setInterval(sample, SAMPLE_MS);
    return () => clearInterval(ticker);
  }, [history, metric, isShown]);
  return { history, version };
}
