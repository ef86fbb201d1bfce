import type { Schedule } from "../curves/schedule";

/** A draft as it is kept: what it was made from, and the server's version that it follows (0: none there). */
export interface Kept {
  readonly base: number;
  readonly schedule: Schedule;
  readonly version: number;
}

/** `kept`: the server has it; `waiting`, `saving`: it will; `offline`: tried again and again; `elsewhere`: another tab
 * wrote the draft; `refused`: the server says no, so only this tab has it; `none`: there is nothing to keep. */
export type SyncStatus = "none" | "kept" | "waiting" | "saving" | "offline" | "elsewhere" | "refused";

export interface SyncState {
  readonly status: SyncStatus;
  readonly version: number;
  readonly reason: string;
}

/** How writing a draft ended. */
export type SaveResult =
  | { is: "saved"; version: number }
  | { is: "elsewhere"; version: number }
  | { is: "passing"; reason: string }
  | { is: "refused"; reason: string };

export interface SyncPorts {
  /** Write a draft over a version, or throw it away where `schedule` is null. Never throws. */
  save(draft: { base: number; schedule: Schedule | null }, version: number): Promise<SaveResult>;
  /** Keep in the tab what the server does not have yet; null: nothing any more. */
  keep(draft: Kept | null): void;
  later(task: () => void, delay_ms: number): () => void;
}

export const QUIET_MS = 600;
export const RETRY_MS = 2_000;

/**
 * Keeps a draft in the tab at once and on the server soon: one write at a time, the newest content, never over a
 * version that it has not seen. Works without React; `subscribe` and `snapshot` are what a hook needs.
 */
export class DraftSync {
  private state: SyncState;
  private wanted: { base: number; schedule: Schedule | null } | null = null;
  private isSaving = false;
  private isHeld = false;
  private cancel: (() => void) | null = null;
  private readonly watchers = new Set<() => void>();

  /** Begin with what was read: `known` is what the server has at `version`, or what another tab wrote before this one's. */
  constructor(
    private readonly ports: SyncPorts,
    version: number,
    private known: { base: number; schedule: Schedule } | null = null,
    isElsewhere = false,
  ) {
    this.state = { status: isElsewhere ? "elsewhere" : version > 0 ? "kept" : "none", version, reason: "" };
  }

  readonly subscribe = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => void this.watchers.delete(watcher);
  };

  readonly snapshot = (): SyncState => this.state;

  /** The draft is this now; null: it is the revision itself, nothing to keep. */
  want(base: number, schedule: Schedule | null): void {
    const isIdle = this.wanted === null && !this.isSaving;
    if (isIdle && schedule === null && this.state.version === 0) return;
    if (isIdle && this.state.status === "kept" && this.known?.base === base && this.known.schedule === schedule) return;
    this.wanted = { base, schedule };
    this.ports.keep(schedule === null ? null : { base, schedule, version: this.state.version });
    if (this.state.status === "elsewhere") return;
    this.set({ status: "waiting" });
    this.schedule(QUIET_MS);
  }

  /** Write what is wanted at once, and wait until it is written or cannot be. */
  async flush(): Promise<SyncState> {
    this.cancel?.();
    while (this.isSaving) await this.settled();
    if (this.wanted !== null && this.state.status !== "elsewhere") await this.run();
    return this.state;
  }

  /**
   * Let `task` change the draft on the server, as a publish and a rebase do: what is wanted is written first, and
   * nothing while it runs. `task` says by `adopt` what the server has then.
   */
  async handOver<T>(task: () => Promise<T>): Promise<T> {
    do await this.flush();
    while (this.wanted !== null && this.state.status === "waiting");
    this.isHeld = true;
    try {
      return await task();
    } finally {
      this.isHeld = false;
      if (this.state.status === "waiting" || this.state.status === "offline") this.schedule(QUIET_MS);
    }
  }

  /** The server's draft is this version now, by what this tab asked for (a rebase, a publish, a choice). */
  adopt(version: number, known: { base: number; schedule: Schedule } | null = null): void {
    this.cancel?.();
    this.wanted = null;
    this.known = known;
    this.ports.keep(null);
    this.set({ status: version > 0 ? "kept" : "none", version, reason: "" });
  }

  /** After `elsewhere`: write this tab's draft over the version that is there. */
  overwrite(): void {
    this.set({ status: "waiting", reason: "" });
    this.schedule(0);
  }

  close(): void {
    this.cancel?.();
  }

  private schedule(delay_ms: number): void {
    this.cancel?.();
    this.cancel = this.ports.later(() => void this.run(), delay_ms);
  }

  private async run(): Promise<void> {
    if (this.isSaving || this.isHeld || this.wanted === null) return;
    const draft = this.wanted;
    this.isSaving = true;
    this.set({ status: "saving" });
    const result = await this.ports.save(draft, this.state.version);
    this.isSaving = false;
    this.take(result, draft);
  }

  private take(result: SaveResult, draft: { base: number; schedule: Schedule | null }): void {
    const isNewest = this.wanted === draft;
    if (result.is === "saved") {
      if (isNewest) this.adopt(result.version, draft.schedule && { base: draft.base, schedule: draft.schedule });
      else this.again(result.version);
    } else if (result.is === "elsewhere") {
      this.set({ status: "elsewhere", version: result.version, reason: "" });
    } else if (result.is === "passing") {
      this.set({ status: "offline", reason: result.reason });
      this.schedule(RETRY_MS);
    } else {
      this.set({ status: "refused", reason: result.reason });
    }
  }

  private again(version: number): void {
    this.set({ status: "waiting", version, reason: "" });
    if (this.wanted?.schedule) {
      this.ports.keep({ base: this.wanted.base, schedule: this.wanted.schedule, version });
    }
    this.schedule(QUIET_MS);
  }

  private settled(): Promise<void> {
    return new Promise((done) => {
      const stop = this.subscribe(() => {
        stop();
        done();
      });
    });
  }

  private set(change: Partial<SyncState>): void {
    this.state = { ...this.state, ...change };
    for (const watcher of [...this.watchers]) watcher();
  }
}
