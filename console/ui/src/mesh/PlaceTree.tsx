import { useState } from "react";
import { Icon } from "../ui";
import type { Metric, Ranks } from "./columns";
import classes from "./mesh.module.css";
import type { Place } from "./tree";
import { told } from "./words";

interface PlaceTreeProps {
  tree: Place;
  ranks: Ranks;
  metric: Metric;
  selected?: number;
  onSelect: (rank: number) => void;
}

const MOST_HOSTS = 60;

/** Cluster → host → rank beside the map; hosts with what is worst first. */
export function PlaceTree({ tree, ranks, metric, selected, onSelect }: PlaceTreeProps) {
  const [open, setOpen] = useState<string | null>(null);
  const [most, setMost] = useState(MOST_HOSTS);
  const shown = tree.children.slice(0, most);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <nav className={classes.tree} aria-label="Hosts and ranks" tabIndex={0}>
      <ul>
        {shown.map((host) => (
          <li key={host.key}>
            <button
              type="button"
              className={classes.place}
              aria-expanded={open === host.key}
              onClick={() => setOpen(open === host.key ? null : host.key)}
            >
              <span className={classes.turn} data-open={open === host.key || undefined}>
                <Icon name="chevron" size={12} />
              </span>
              <span className={classes.placeName}>{host.label}</span>
              <Silent count={host.silent} />
              <span className={classes.placeValue}>{told(metric, host.worst) ?? "–"}</span>
            </button>
            {open === host.key && <RanksOf host={host} {...{ ranks, metric, selected, onSelect }} />}
          </li>
        ))}
      </ul>
      {tree.children.length > most && (
        <button type="button" className={classes.moreHosts} onClick={() => setMost(most + MOST_HOSTS * 2)}>
          {tree.children.length - most} more hosts
        </button>
      )}
    </nav>
  );
}

function RanksOf({ host, ranks, metric, selected, onSelect }: { host: Place } & Omit<PlaceTreeProps, "tree">) {
  return (
    <ul className={classes.leaves}>
      {host.children.map((leaf) => {
        const index = leaf.members[0] as number;
        const rank = ranks.rank[index] as number;
        return (
          <li key={leaf.key}>
            <button
              type="button"
              className={classes.place}
              aria-current={rank === selected || undefined}
              onClick={() => onSelect(rank)}
            >
              <span className={classes.placeName}>{leaf.label}</span>
              <Silent count={leaf.silent} />
              <span className={classes.placeValue}>{told(metric, leaf.worst) ?? "–"}</span>
            </button>
          </li>
        );
      })}
    </ul>
  );
}

function Silent({ count }: { count: number }) {
  if (!count) return null;
  return (
    <span className={classes.silent} title={`${count} not reporting`}>
      <Icon name="bad" size={12} />
      {count}
    </span>
  );
}
