import { isSilent, type RankColumns, summarize } from "./columns";

/** A place of the cluster: all of it, a host, or a rank. */
export interface Place {
  key: string;
  label: string;
  kind: "cluster" | "host" | "rank";
  /** Indexes of its ranks. */
  members: number[];
  /** The worst value of its ranks; NaN where none is known. */
  worst: number;
  silent: number;
  children: Place[];
}

/** Cluster → host → rank, hosts with the worst value first. */
export function placeTree(ranks: RankColumns, value: Float64Array): Place {
  const hosts = new Map<string, number[]>();
  ranks.rank.forEach((_, i) => {
    const host = ranks.host[i] ?? "no host known";
    const members = hosts.get(host);
    if (members) members.push(i);
    else hosts.set(host, [i]);
  });
  const children = [...hosts].map(([host, members]) => hostPlace(ranks, value, host, members)).sort(byWorst);
  const all = ranks.rank.map((_, i) => i);
  return { ...place(ranks, value, "cluster", "all ranks", "cluster", all), children };
}

function hostPlace(ranks: RankColumns, value: Float64Array, host: string, members: number[]): Place {
  const leaves = members.map((i) => place(ranks, value, `rank:${ranks.rank[i]}`, `rank ${ranks.rank[i]}`, "rank", [i]));
  return { ...place(ranks, value, `host:${host}`, host, "host", members), children: leaves.sort(byWorst) };
}

function place(
  ranks: RankColumns,
  value: Float64Array,
  key: string,
  label: string,
  kind: Place["kind"],
  members: number[],
): Place {
  const worst = summarize(Float64Array.from(members, (i) => value[i] as number)).max;
  const silent = members.filter((i) => isSilent(ranks.state[i])).length;
  return { key, label, kind, members, worst, silent, children: [] };
}

function byWorst(a: Place, b: Place): number {
  if (a.silent !== b.silent) return b.silent - a.silent;
  if (Number.isNaN(a.worst) || Number.isNaN(b.worst))
    return Number(Number.isNaN(a.worst)) - Number(Number.isNaN(b.worst));
  return b.worst - a.worst;
}
