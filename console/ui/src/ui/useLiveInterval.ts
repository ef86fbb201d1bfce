import { useLive } from "../api/events";

/** How often to read again what events do not carry; never while a person has paused the page. */
export function useLiveInterval(interval_ms: number): number | false {
  return useLive().status === "paused" ? false : interval_ms;
}
