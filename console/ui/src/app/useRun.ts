import { useParams, useSearch } from "@tanstack/react-router";

/** The run and stream in the address; `run` is empty on pages that are about none. */
export function useRun(): { run: string; stream: string } {
  const { run = "" } = useParams({ strict: false });
  const { stream = "train" } = useSearch({ strict: false });
  return { run, stream };
}
