import { Handle, type Node, type NodeProps, Position } from "@xyflow/react";
import { memo } from "react";
import { formatShare, Icon } from "../ui";
import classes from "./graph.module.css";
import { type Stage, split, statusOf } from "./model";
import { MARKS, rateOf } from "./words";

export type StageNodeType = Node<{ stage: Stage; height: number; isNear: boolean }, "stage">;

/** A stage on the picture: how it is, how full its queue is, how its time goes, what it passes on. */
export const StageNode = memo(function StageNode({ data, selected }: NodeProps<StageNodeType>) {
  const { stage, height, isNear } = data;
  const status = statusOf(stage);
  const { tone, word } = MARKS[status];
  return (
    <div
      className={classes.node}
      style={{ height }} // known, so that nothing has to be measured
      data-tone={tone}
      data-selected={selected || undefined}
      data-far={!isNear || undefined}
    >
      <Handle type="target" position={Position.Left} className={classes.port} isConnectable={false} />
      <div className={classes.nodeHead}>
        <span className={classes.nodeName} title={stage.label}>
          {stage.label}
        </span>
        {stage.members > 1 && <span className={classes.members}>×{stage.members}</span>}
        <span className={classes.nodeMark} data-tone={tone}>
          <Icon name={tone} size={12} />
          {word}
        </span>
      </div>
      <Time stage={stage} />
      <Queue fill={stage.queue_fill} />
      <div className={classes.nodeFoot}>
        <span>{rateOf(stage) ?? <span className={classes.quiet}>{stage.detail || "rate not known"}</span>}</span>
        {stage.errors > 0 && (
          <span className={classes.errors}>
            <Icon name="bad" size={11} />
            {stage.errors}
          </span>
        )}
      </div>
      <Handle type="source" position={Position.Right} className={classes.port} isConnectable={false} />
    </div>
  );
});

function Time({ stage }: { stage: Stage }) {
  const parts = split(stage);
  if (!parts) return null;
  const title = `busy ${formatShare(parts.busy)}, held up ${formatShare(parts.blocked)}, idle ${formatShare(parts.idle)}`;
  return (
    <div className={classes.bars}>
      <div className={classes.time} title={title}>
        <span data-part="busy" style={{ width: `${parts.busy * 100}%` }} />
        <span data-part="blocked" style={{ width: `${parts.blocked * 100}%` }} />
      </div>
      <span className={classes.barText}>
        {round(parts.busy)} busy{parts.blocked >= 0.05 && `, ${round(parts.blocked)} held up`}
      </span>
    </div>
  );
}

function Queue({ fill }: { fill: number | null }) {
  if (fill === null) return null;
  return (
    <div className={classes.bars}>
      <div className={classes.queue} title={`queue ${formatShare(fill)} full`}>
        <span style={{ width: `${Math.min(fill, 1) * 100}%` }} />
      </div>
      <span className={classes.barText}>queue {round(fill)} full</span>
    </div>
  );
}

const round = (share: number): string => `${Math.round(share * 100)}\u202f%`;
