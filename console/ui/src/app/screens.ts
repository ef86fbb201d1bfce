/** The screens in the order of the navigation; `key` follows `g`. */
export interface ScreenLink {
  name: string;
  icon: string;
  key: string;
  to: string;
  group: "run" | "data plane" | "history" | "all runs";
}

export const RUN_SCREENS: ScreenLink[] = [
  { name: "Overview", icon: "overview", key: "o", to: "/runs/$run", group: "run" },
  { name: "Schedule", icon: "schedule", key: "s", to: "/runs/$run/schedule", group: "run" },
  { name: "Revisions", icon: "revisions", key: "v", to: "/runs/$run/revisions", group: "run" },
  { name: "Graph", icon: "graph", key: "d", to: "/runs/$run/graph", group: "data plane" },
  { name: "Mesh", icon: "mesh", key: "m", to: "/runs/$run/mesh", group: "data plane" },
  { name: "Balance", icon: "balance", key: "b", to: "/runs/$run/balance", group: "data plane" },
  { name: "Sources", icon: "sources", key: "u", to: "/runs/$run/sources", group: "data plane" },
  { name: "Steps", icon: "steps", key: "t", to: "/runs/$run/steps", group: "history" },
  { name: "Checkpoints", icon: "checkpoints", key: "c", to: "/runs/$run/checkpoints", group: "history" },
];

export const TOP_SCREENS: ScreenLink[] = [
  { name: "Runs", icon: "runs", key: "r", to: "/runs", group: "all runs" },
  { name: "Audit", icon: "audit", key: "a", to: "/audit", group: "all runs" },
  { name: "Access", icon: "access", key: "x", to: "/access", group: "all runs" },
];
