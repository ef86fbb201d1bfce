import { Icon } from "../ui";
import classes from "./graph.module.css";
import { kinds, type Stage, statusOf } from "./model";
import { MARKS, rateOf } from "./words";

interface StageTreeProps {
  stages: Stage[];
  selected?: string;
  onSelect: (id: string) => void;
}

/** The stages as a list, by kind along the flow, the worst of each first. */
export function StageTree({ stages, selected, onSelect }: StageTreeProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <nav className={classes.tree} aria-label="Stages, the worst first" tabIndex={0}>
      {kinds(stages).map(({ kind, label, stages: members }) => (
        <section key={kind} aria-label={label}>
          <h3 className={classes.kind}>
            {label}
            <span className="lm-muted"> {members.length}</span>
          </h3>
          <ul>
            {members.map((stage) => (
              <li key={stage.id}>
                <Row stage={stage} isSelected={stage.id === selected} onSelect={onSelect} />
              </li>
            ))}
          </ul>
        </section>
      ))}
    </nav>
  );
}

function Row({ stage, isSelected, onSelect }: { stage: Stage; isSelected: boolean; onSelect: (id: string) => void }) {
  const { tone, word } = MARKS[statusOf(stage)];
  return (
    <button
      type="button"
      className={classes.row}
      aria-current={isSelected || undefined}
      onClick={() => onSelect(stage.id)}
    >
      <span className={classes.nodeMark} data-tone={tone} title={word}>
        <Icon name={tone} size={12} />
        <span className="lm-sr">{word}</span>
      </span>
      <span className={classes.rowName}>{stage.label}</span>
      <span className={classes.rowRate}>{rateOf(stage) ?? ""}</span>
    </button>
  );
}
