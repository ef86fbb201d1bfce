import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { feed, useEvents, useLive } from "../api/events";
import { useRun } from "./useRun";

/** Keeps the tab's stream on the run in the address, and reads everything anew after each reconnection. */
export function useFeed(): void {
  const { run, stream } = useRun();
  const { connection } = useLive();
  const queries = useQueryClient();
  useEffect(() => {
    const query = new URLSearchParams(run ? { run, stream } : {});
    feed.watch(`/api/v1/events${run ? `?${query}` : ""}`);
  }, [run, stream]);
  useEffect(() => () => feed.watch(""), []); // who signs in or out leaves this stream, and gets another
  useEffect(() => {
    if (connection > 1) void queries.invalidateQueries();
  }, [connection, queries]);
  useEffect(() => {
    const follow = () => feed.setHidden(document.hidden);
    document.addEventListener("visibilitychange", follow);
    return () => document.removeEventListener("visibilitychange", follow);
  }, []);
  useEvents("resync", () => void queries.invalidateQueries());
  useEvents("run", () => void queries.invalidateQueries({ queryKey: ["runs"] }));
}
