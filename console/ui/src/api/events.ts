import { useEffect, useRef, useSyncExternalStore } from "react";
import { Feed, type FeedState } from "./feed";

/** The tab's one event stream. */
export const feed = new Feed();

/** Call `handler` with each event of `type`: the models are `hello`, `run`, `progress`, `ranks`, `actors`, `sources`,
 * `schedule`, `audit`. The handler may change from render to render. */
export function useEvents<T = unknown>(type: string, handler: (data: T) => void): void {
  const latest = useRef(handler);
  latest.current = handler;
  useEffect(() => feed.on(type, (data) => latest.current(data as T)), [type]);
}

/** Whether what is shown is live. */
export function useLive(): FeedState {
  return useSyncExternalStore(feed.subscribe, feed.snapshot);
}
