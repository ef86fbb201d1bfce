import { EventParser } from "./sse";

/** `connecting`: not yet; `live`: beats come; `stale`: they stopped; `offline`: cut off, trying again; `paused`: by the
 * person; `refused`: the planner does not let this session listen. */
export type FeedStatus = "connecting" | "live" | "stale" | "offline" | "paused" | "refused";

export interface FeedState {
  status: FeedStatus;
  /** When the last byte came, in ms of `Date.now()`; 0: never. */
  lastBeat: number;
  /** Grows with each connection, so that what is on the screen can be read anew. */
  connection: number;
}

type Handler = (data: unknown, id: string) => void;
type Fetch = typeof fetch;

const BEAT_MS = 5_000;
/** Three missed beats. */
export const STALE_MS = 3 * BEAT_MS;
const HIDDEN_MS = 20_000;
const FIRST_RETRY_MS = 250;
const LONGEST_RETRY_MS = 4_000;

/** The one event stream of a tab. `watch` names what to listen to; handlers get parsed data by type.
 *
 * It reads the stream with fetch rather than EventSource: comments are beats here, and a refusal has a reason. It closes
 * while the tab is hidden and tells listeners of `connection` to read anew when it is back. */
export class Feed {
  private state: FeedState = { status: "connecting", lastBeat: 0, connection: 0 };
  private readonly handlers = new Map<string, Set<Handler>>();
  private readonly watchers = new Set<() => void>();
  private url = "";
  private abort: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private hiding: ReturnType<typeof setTimeout> | undefined;
  private ticker: ReturnType<typeof setInterval> | undefined;
  private retryMs = FIRST_RETRY_MS;

  constructor(private readonly get: Fetch = (...args) => fetch(...args)) {}

  /** Listen to this address from now on; empty: to nothing. */
  watch(url: string): void {
    if (url === this.url) return;
    this.url = url;
    this.retryMs = FIRST_RETRY_MS;
    if (this.state.status !== "paused") this.open();
  }

  /** Call `handler` with each event of a type until the returned function is called. */
  on(type: string, handler: Handler): () => void {
    const of = this.handlers.get(type) ?? new Set();
    this.handlers.set(type, of.add(handler));
    return () => void of.delete(handler);
  }

  readonly subscribe = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => void this.watchers.delete(watcher);
  };

  readonly snapshot = (): FeedState => this.state;

  /** Stop or go on, by a person's wish. */
  setPaused(isPaused: boolean): void {
    if (isPaused) this.close("paused");
    else if (this.state.status === "paused") this.open();
  }

  /** Follow the tab's visibility: hidden for a while, the stream is given back to the browser. */
  setHidden(isHidden: boolean): void {
    clearTimeout(this.hiding);
    if (this.state.status === "paused") return;
    if (isHidden) this.hiding = setTimeout(() => this.close("connecting"), HIDDEN_MS);
    else if (!this.abort) this.open();
  }

  /** `meanwhile`: what the badge says until the first byte is there. */
  private open(meanwhile: FeedStatus = "connecting"): void {
    this.close(meanwhile);
    if (!this.url) return;
    const abort = new AbortController();
    this.abort = abort;
    this.ticker = setInterval(() => this.lookAtBeat(), 1_000);
    void this.read(this.url, abort).catch(() => undefined);
  }

  private close(status: FeedStatus): void {
    clearTimeout(this.timer);
    clearInterval(this.ticker);
    this.abort?.abort();
    this.abort = null;
    this.set({ status });
  }

  private async read(url: string, abort: AbortController): Promise<void> {
    let isRefused = false;
    try {
      const answer = await this.get(url, { signal: abort.signal, headers: { accept: "text/event-stream" } });
      isRefused = answer.status === 401 || answer.status === 403;
      if (answer.ok && answer.body) await this.pump(answer.body.pipeThrough(new TextDecoderStream()), abort);
    } catch {
      // A cut connection and a refused one are told apart by what comes next: nothing to add.
    }
    if (this.abort === abort) this.tryLater(isRefused);
  }

  private async pump(body: ReadableStream<string>, abort: AbortController): Promise<void> {
    const parser = new EventParser();
    this.retryMs = FIRST_RETRY_MS;
    this.set({ status: "live", lastBeat: Date.now(), connection: this.state.connection + 1 });
    const reader = body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.abort !== abort) return;
      this.set({ status: "live", lastBeat: Date.now() });
      for (const event of parser.push(value)) this.deliver(event.type, event.data, event.id);
    }
  }

  private deliver(type: string, data: string, id: string): void {
    const parsed: unknown = JSON.parse(data);
    for (const handler of this.handlers.get(type) ?? []) handler(parsed, id);
  }

  private tryLater(isRefused: boolean): void {
    this.close(isRefused ? "refused" : "offline");
    const wait = this.retryMs * (0.75 + Math.random() / 2);
    this.retryMs = Math.min(this.retryMs * 2, LONGEST_RETRY_MS);
    if (!isRefused) this.timer = setTimeout(() => this.open("offline"), wait);
  }

  private lookAtBeat(): void {
    const isSilent = this.state.lastBeat > 0 && Date.now() - this.state.lastBeat > STALE_MS;
    if (isSilent && this.state.status === "live") this.set({ status: "stale" });
  }

  private set(change: Partial<FeedState>): void {
    const next = { ...this.state, ...change };
    const isSeen = next.status !== this.state.status || next.connection !== this.state.connection;
    this.state = isSeen ? next : Object.assign(this.state, change);
    if (isSeen) for (const watcher of this.watchers) watcher();
  }
}
