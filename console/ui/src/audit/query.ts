import { keepPreviousData, useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { api, call, type Model } from "../api/client";
import { useEvents } from "../api/events";
import type { AuditSearch } from "./route";

export type Line = Model<"AuditView">;
const LIMIT = 100;
/** Lines that an export reads at most. */
export const EXPORT_LINES = 10_000;

function readPage(filter: AuditSearch, before: number | undefined, limit: number, signal?: AbortSignal) {
  return call(api.GET("/api/v1/audit", { params: { query: { ...filter, before, limit } }, signal }));
}

/** The audit log, newest first, page by page; a new line comes by an event. */
export function useAudit(filter: AuditSearch) {
  const queries = useQueryClient();
  const queryKey = ["audit", filter.run ?? "", filter.author ?? "", filter.action ?? ""];
  useEvents("audit", () => void queries.invalidateQueries({ queryKey }));
  return useInfiniteQuery({
    queryKey,
    initialPageParam: undefined as number | undefined,
    queryFn: ({ pageParam, signal }) => readPage(filter, pageParam, LIMIT, signal),
    getNextPageParam: (page) => (page.length < LIMIT ? undefined : page.at(-1)?.number),
    placeholderData: keepPreviousData,
  });
}

/** All lines that match, for a file; the newest `EXPORT_LINES` of them. */
export async function readAll(filter: AuditSearch): Promise<Line[]> {
  const lines: Line[] = [];
  let before: number | undefined;
  while (lines.length < EXPORT_LINES) {
    const page = await readPage(filter, before, LIMIT);
    lines.push(...page);
    if (page.length < LIMIT) break;
    before = page.at(-1)?.number;
  }
  return lines;
}
