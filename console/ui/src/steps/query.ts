import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, call, type Model } from "../api/client";
import { useLiveInterval } from "../ui";
import type { Spot } from "./place";

/** Lists are always there, if empty. */
export type PieceView = Required<Model<"PieceView">>;
export type StepView = Required<Omit<Model<"StepView">, "pieces">> & { pieces: PieceView[] };

/** What a rank's batch of a step holds, with text and images. A planned step stays as it is; its state may change. */
export function useStep(run: string, stream: string, spot: Spot) {
  const query = { stream, rank: spot.rank, microbatch: spot.microbatch, text: true, images: true };
  return useQuery({
    queryKey: ["step", run, stream, spot.step, spot.rank, spot.microbatch ?? -1],
    queryFn: () => readStep(run, spot.step, query),
    placeholderData: keepPreviousData,
    staleTime: 60_000,
    gcTime: 60_000,
  });
}

interface StepQuery {
  stream: string;
  rank: number;
  microbatch?: number;
  text: boolean;
  images: boolean;
}

async function readStep(run: string, step: number, query: StepQuery): Promise<StepView> {
  const view = await call(api.GET("/api/v1/runs/{run}/steps/{step}", { params: { path: { run, step }, query } }));
  return view as StepView;
}

/** Where the stream is: its steps' bounds. */
export function useStream(run: string, stream: string) {
  return useQuery({
    queryKey: ["stream", run, stream],
    queryFn: () => call(api.GET("/api/v1/runs/{run}/streams/{stream}", { params: { path: { run, stream } } })),
    refetchInterval: useLiveInterval(10_000),
  });
}
