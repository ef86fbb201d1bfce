import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { api, call } from "../api/client";
import { useEvents } from "../api/events";
import { useLiveInterval } from "../ui";
import type { Flow, Stage } from "./model";

export interface Graph {
  generation: number;
  at: number;
  window_s: number | null;
  nodes: Stage[];
  edges: Flow[];
  expanded: string | null;
  groups: string[];
}

const AGAIN_MS = 5_000;
const SOONEST_MS = 1_000;

async function readGraph(run: string, stream: string, expand: string | undefined): Promise<Graph> {
  const query = { stream, expand };
  return call(api.GET("/api/v1/runs/{run}/graph", { params: { path: { run }, query } }));
}

/** The data plane, collapsed by group: read again every five seconds, and at once when a process comes or goes. */
export function useGraph(run: string, stream: string, expand: string | undefined) {
  const client = useQueryClient();
  const asked = useRef(0);
  const query = useQuery({
    queryKey: ["graph", run, stream, expand ?? ""],
    queryFn: () => readGraph(run, stream, expand),
    placeholderData: keepPreviousData,
    refetchInterval: useLiveInterval(AGAIN_MS),
  });
  useEvents<{ gone: string[]; state: string[] }>("actors", (event) => {
    const isUrgent = event.gone.length > 0 || event.state.some((state) => state !== "ok");
    if (!isUrgent || Date.now() - asked.current < SOONEST_MS) return;
    asked.current = Date.now();
    void client.invalidateQueries({ queryKey: ["graph", run, stream] });
  });
  return query;
}
