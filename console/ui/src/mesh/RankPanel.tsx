import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { formatExact, Icon, StatusMark } from "../ui";
import { METRICS, type Ranks, summarize, values } from "./columns";
import classes from "./mesh.module.css";
import { STATES, told } from "./words";

interface RankPanelProps {
  run: string;
  ranks: Ranks;
  rank: number;
  onClose: () => void;
}

/** One rank: where it is, how it is beside the others, and the way to what its batch holds. */
export function RankPanel({ run, ranks, rank, onClose }: RankPanelProps) {
  const index = ranks.rank.indexOf(rank);
  if (index < 0) return <p className="lm-muted">There is no rank {rank} in this generation.</p>;
  const state = ranks.state[index] ?? "unknown";
  const mark = STATES[state] ?? { tone: "unknown" as const, word: state };
  const step = ranks.acknowledged[index] ?? 0;
  return (
    <section className={classes.rank} aria-label={`Rank ${rank}`}>
      <header className={classes.rankHead}>
        <h3>Rank {rank}</h3>
        <StatusMark tone={mark.tone} word={mark.word} />
        <Button variant="subtle" color="gray" px={6} ml="auto" onClick={onClose} aria-label={`Close rank ${rank}`}>
          <Icon name="close" size={13} />
        </Button>
      </header>
      <dl className={classes.facts}>
        <Fact name="Place" value={placeOf(ranks, index)} />
        <Fact name="Host" value={ranks.host[index] ?? "it has not said"} />
        <Fact name="Constructor" value={ranks.constructor[index] ?? "none serves it"} />
        <Fact name="Has consumed" value={`${formatExact(step)} steps`} />
        {METRICS.map((metric) => (
          <Fact
            key={metric.key}
            name={metric.label}
            value={told(metric, ranks[metric.key][index]) ?? "not known"}
            note={beside(ranks, metric.key, index)}
          />
        ))}
      </dl>
      <Link to="/runs/$run/steps/$step" params={{ run, step: String(Math.max(0, step - 1)) }} search={{ rank }}>
        What its batch of step {formatExact(Math.max(0, step - 1))} holds
      </Link>
    </section>
  );
}

function Fact({ name, value, note }: { name: string; value: string; note?: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>
        {value}
        {note && <span className="lm-muted"> {note}</span>}
      </dd>
    </>
  );
}

const placeOf = (ranks: Ranks, index: number): string =>
  Object.entries(ranks.coords)
    .map(([axis, coords]) => `${axis} ${coords[index]}`)
    .join(" · ");

function beside(ranks: Ranks, key: (typeof METRICS)[number]["key"], index: number): string {
  if (key === "cost" || key === "behind" || key === "seen_s") return "";
  const all = values(ranks, key);
  const mean = summarize(all).mean;
  const own = all[index] as number;
  return mean > 0 && !Number.isNaN(own) ? `${(own / mean).toFixed(2)} × mean` : "";
}
