import { useQuery } from "@tanstack/react-query";
import { api, call } from "../api/client";

/** All runs by name. */
export function useRuns() {
  return useQuery({ queryKey: ["runs"], queryFn: ({ signal }) => call(api.GET("/api/v1/runs", { signal })) });
}
