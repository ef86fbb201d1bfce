/**
 * Runs beside the bundle, before any of it: asks for what the screen in the address will ask first, and for its code.
 * Otherwise a screen waits for four things in turn: the bundle, its first render, its own code, the planner's answer.
 */
import type {} from "./api/early";

const API = "/api/v1";
const TEXTS = "text=true&images=true";

/** Addresses that a screen reads first, as its queries write them. `early.test.ts` and the browser tests compare. */
export function firstAsked(path: string, search: string): string[] {
  const [top = "", run = "", screen = "", item = ""] = path.split("/").slice(1);
  const shared = [`${API}/session`, `${API}/runs`];
  if (top === "sign-in") return [];
  if (top !== "runs" || run === "") return shared;
  const query = new URLSearchParams(search);
  const own = ofRun(screen || "overview", item, query.get("stream") ?? "train", query);
  return [...shared, ...own.map((each) => `${API}/runs/${run}/${each}`)];
}

function ofRun(screen: string, item: string, stream: string, query: URLSearchParams): string[] {
  const of = `stream=${encodeURIComponent(stream)}`;
  const more = (...names: string[]) =>
    names.flatMap((name) =>
      query.get(name) === null ? [] : [`&${name}=${encodeURIComponent(query.get(name) ?? "")}`],
    );
  switch (screen) {
    case "overview":
      return [`overview?${of}`];
    case "schedule":
      return ["schedule"]; // drafts later: the page before may be writing one
    case "revisions":
      return ["schedule", "revisions?limit=50"];
    case "graph":
      return [`graph?${of}${more("expand").join("")}`];
    case "mesh":
      return [`mesh?${of}`];
    case "balance":
      return [`balance?${of}${more("from", "to").join("")}&step=-1`];
    case "sources":
      return [`sources/health?${of}&limit=60${more("state", "q").join("")}`];
    case "checkpoints":
      return [`checkpoints?${of}&limit=50`];
    case "steps":
      return stepOf(item, of, query);
    default:
      return [];
  }
}

function stepOf(item: string, of: string, query: URLSearchParams): string[] {
  if (!/^\d+$/.test(item)) return [`streams/${of.slice("stream=".length)}`];
  const microbatch = query.get("microbatch");
  const part = microbatch === null ? "" : `&microbatch=${microbatch}`;
  return [
    `steps/${Number(item)}?${of}&rank=${query.get("rank") ?? 0}${part}&${TEXTS}`,
    `streams/${of.slice("stream=".length)}`,
  ];
}

/** Which screen's code the address needs, as the build names it. */
export function screenOf(path: string): string {
  const [top = "", run = "", screen = "", item = ""] = path.split("/").slice(1);
  if (top !== "runs") return top;
  if (run === "") return "runs";
  return screen === "steps" && item === "" ? "steps/Newest" : screen || "overview";
}

function start(): void {
  const asked = firstAsked(location.pathname, location.search);
  const at = performance.now();
  const answers = new Map(asked.map((url) => [new URL(url, location.href).href, fetch(url)]));
  for (const answer of answers.values()) answer.catch(() => undefined); // whoever takes it is told
  window.loadmasterEarly = { at, answers };
  for (const href of chunksOf(screenOf(location.pathname))) preload(href);
}

/** The scripts of a screen; the build writes them into the page. */
function chunksOf(screen: string): string[] {
  const told = document.querySelector<HTMLElement>("[data-chunks]")?.dataset.chunks;
  const chunks = told ? (JSON.parse(told) as Record<string, string[]>) : {};
  return chunks[screen] ?? [];
}

function preload(href: string): void {
  const link = document.createElement("link");
  link.rel = "modulepreload";
  link.crossOrigin = ""; // as the bundle asks for it
  link.href = href;
  document.head.append(link);
}

if (typeof document !== "undefined" && document.querySelector("[data-chunks]")) start();
