import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Feed, STALE_MS } from "./feed";
import { asProblem, problemOf, unreachable } from "./problem";
import { refusal, type Session } from "./session";
import { EventParser } from "./sse";

describe("EventParser", () => {
  const text = 'retry: 1000\n\nid: 7\nevent: progress\ndata: {"a":\ndata: 1}\n\n: beat\n\ndata: x\n\n';
  const wanted = [
    { id: "7", type: "progress", data: '{"a":\n1}' },
    { id: "7", type: "message", data: "x" },
  ];

  it("gives whole events whatever the chunks are", () => {
    for (let size = 1; size <= text.length; size++) {
      const parser = new EventParser();
      const chunks = Array.from({ length: Math.ceil(text.length / size) }, (_, i) =>
        text.slice(i * size, (i + 1) * size),
      );
      expect(chunks.flatMap((chunk) => parser.push(chunk))).toEqual(wanted);
    }
  });

  it("takes any line ending, also when it is cut in two", () => {
    for (let size = 1; size <= 9; size++) {
      const parser = new EventParser();
      const crlf = "event: run\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n";
      const chunks = Array.from({ length: Math.ceil(crlf.length / size) }, (_, i) =>
        crlf.slice(i * size, (i + 1) * size),
      );
      expect(chunks.flatMap((chunk) => parser.push(chunk)).map((event) => event.data)).toEqual(["1", "2"]);
    }
  });
});

describe("problems", () => {
  it("are told in the planner's words", () => {
    const problem = problemOf(412, { code: "CONFLICT", detail: "revision 3 is newer", details: { revision: 3 } });
    expect(problem).toMatchObject({
      code: "CONFLICT",
      status: 412,
      message: "revision 3 is newer",
      details: { revision: 3 },
    });
  });

  it("of a body that is none are told by their status", () => {
    expect(problemOf(502, "<html>").message).toBe("the planner answered 502");
  });

  it("pass by themselves only where nobody need change anything", () => {
    expect(unreachable(new Error("refused")).isPassing).toBe(true);
    expect(problemOf(503, null).isPassing).toBe(true);
    expect(problemOf(403, null).isPassing).toBe(false);
    expect(asProblem(new Error("bug")).isPassing).toBe(false);
  });
});

describe("refusal", () => {
  const session = (role: Session["role"], isKnown = true): Session => ({
    name: "ada",
    role,
    can: [],
    access: "local",
    isKnown,
  });

  it("is empty for a role and those above it", () => {
    expect(refusal(session("publisher"), "editor")).toBe("");
    expect(refusal(session("publisher"), "publisher")).toBe("");
  });

  it("names the role that is needed, and one's own", () => {
    expect(refusal(session("viewer"), "publisher")).toBe("Needs the role publisher; you are viewer");
    expect(refusal(session("viewer", false), "editor")).toBe("Sign in as editor to do this");
  });
});

describe("Feed", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  function planner() {
    const streams: ReadableStreamDefaultController<Uint8Array>[] = [];
    const answers: Response[] = [];
    const get = vi.fn((_url: unknown, init?: RequestInit) => {
      const ready = answers.shift();
      if (ready) return Promise.resolve(ready);
      const body = new ReadableStream<Uint8Array>({
        start: (controller) => {
          streams.push(controller);
          init?.signal?.addEventListener("abort", () => controller.error(new Error("aborted")));
        },
      });
      return Promise.resolve(new Response(body));
    });
    const say = (text: string) => streams.at(-1)?.enqueue(new TextEncoder().encode(text));
    return { get: get as unknown as typeof fetch, calls: get, say, streams, answers };
  }

  const settle = () => vi.advanceTimersByTimeAsync(1);

  it("delivers events by type, and is live", async () => {
    const { get, say } = planner();
    const feed = new Feed(get);
    const heard: unknown[] = [];
    const stop = feed.on("progress", (data) => heard.push(data));
    feed.watch("/api/v1/events");
    await settle();
    say('event: progress\ndata: {"acknowledged": 4}\n\nevent: run\ndata: {}\n\n');
    await settle();
    expect(heard).toEqual([{ acknowledged: 4 }]);
    expect(feed.snapshot()).toMatchObject({ status: "live", connection: 1 });
    stop();
    say("event: progress\ndata: {}\n\n");
    await settle();
    expect(heard).toHaveLength(1);
    feed.watch("");
  });

  it("is stale after three missed beats, and live with the next one", async () => {
    const { get, say } = planner();
    const feed = new Feed(get);
    feed.watch("/api/v1/events");
    await settle();
    say(": beat\n\n");
    await vi.advanceTimersByTimeAsync(STALE_MS + 1_500);
    expect(feed.snapshot().status).toBe("stale");
    say(": beat\n\n");
    await settle();
    expect(feed.snapshot().status).toBe("live");
    feed.watch("");
  });

  it("that is cut off connects again, and counts it", async () => {
    const { get, streams } = planner();
    const feed = new Feed(get);
    feed.watch("/api/v1/events");
    await settle();
    streams[0]?.close();
    await settle();
    expect(feed.snapshot().status).toBe("offline");
    await vi.advanceTimersByTimeAsync(1_000);
    expect(feed.snapshot()).toMatchObject({ status: "live", connection: 2 });
    feed.watch("");
  });

  it("that is refused does not knock again", async () => {
    const { get, calls, answers } = planner();
    answers.push(new Response("", { status: 401 }));
    const feed = new Feed(get);
    feed.watch("/api/v1/events");
    await vi.advanceTimersByTimeAsync(60_000);
    expect(feed.snapshot().status).toBe("refused");
    expect(calls).toHaveBeenCalledTimes(1);
  });

  it("that is paused stays so until a person goes on, whatever the tab does", async () => {
    const { get } = planner();
    const feed = new Feed(get);
    feed.watch("/api/v1/events");
    await settle();
    feed.setPaused(true);
    feed.setHidden(true);
    feed.setHidden(false);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(feed.snapshot().status).toBe("paused");
    feed.setPaused(false);
    await settle();
    expect(feed.snapshot()).toMatchObject({ status: "live", connection: 2 });
    feed.watch("");
  });

  it("gives the stream back while the tab is hidden, and takes it up again", async () => {
    const { get, calls } = planner();
    const feed = new Feed(get);
    feed.watch("/api/v1/events");
    await settle();
    feed.setHidden(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(calls).toHaveBeenCalledTimes(1);
    feed.setHidden(false);
    await settle();
    expect(calls).toHaveBeenCalledTimes(2);
    expect(feed.snapshot().status).toBe("live");
    feed.watch("");
  });

  it("that breaks while the tab is hidden is given back all the same", async () => {
    const { get, streams } = planner();
    const feed = new Feed(get);
    feed.watch("/api/v1/events");
    await settle();
    feed.setHidden(true);
    streams[0]?.close();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(streams).toHaveLength(2);
    expect(feed.snapshot().status).toBe("connecting");
  });

  it("that was refused is asked for again by who left it and signed in", async () => {
    const { get, answers } = planner();
    answers.push(new Response("", { status: 401 }));
    const feed = new Feed(get);
    feed.watch("/api/v1/events");
    await settle();
    feed.watch("");
    feed.watch("/api/v1/events");
    await settle();
    expect(feed.snapshot().status).toBe("live");
    feed.watch("");
  });
});
