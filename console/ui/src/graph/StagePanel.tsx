import { Button } from "@mantine/core";
import { Icon, StatusMark } from "../ui";
import classes from "./graph.module.css";
import { type Stage, statusOf } from "./model";
import { MARKS, rateOf, shareOf } from "./words";

interface StagePanelProps {
  stage: Stage;
  expanded: string | null;
  onExpand: (group: string | undefined) => void;
  onClose: () => void;
}

/** One stage with all its numbers. */
export function StagePanel({ stage, expanded, onExpand, onClose }: StagePanelProps) {
  const { tone, word } = MARKS[statusOf(stage)];
  const facts: [string, string | null][] = [
    ["Passes on", rateOf(stage)],
    ["Busy", shareOf(stage.busy)],
    ["Held up", shareOf(stage.blocked)],
    ["Idle", shareOf(stage.idle)],
    ["Queue", shareOf(stage.queue_fill)],
    ["Errors", String(stage.errors)],
    ["Members", String(stage.members)],
  ];
  return (
    <section className={classes.panel} aria-label={stage.label}>
      <header className={classes.panelHead}>
        <h3>{stage.label}</h3>
        <Button variant="subtle" color="gray" px={6} onClick={onClose} aria-label={`Close ${stage.label}`}>
          <Icon name="close" size={13} />
        </Button>
      </header>
      <StatusMark tone={tone} word={word} />
      <dl className={classes.facts}>
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value ?? <span className="lm-muted">not known</span>}</dd>
          </div>
        ))}
      </dl>
      {stage.detail && <p className={classes.detail}>{stage.detail}</p>}
      {stage.group && stage.group !== expanded && (
        <Button variant="default" onClick={() => onExpand(stage.group ?? undefined)}>
          Show its {stage.members} parts
        </Button>
      )}
      {expanded && (
        <Button variant="default" onClick={() => onExpand(undefined)}>
          Collapse {expanded}
        </Button>
      )}
    </section>
  );
}
