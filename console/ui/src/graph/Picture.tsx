import "@xyflow/react/dist/style.css";
import { useComputedColorScheme } from "@mantine/core";
import { Controls, type Edge, MarkerType, Position, ReactFlow, ReactFlowProvider, useReactFlow } from "@xyflow/react";
import { useEffect, useMemo, useRef } from "react";
import classes from "./graph.module.css";
import { heightOf, NODE_HEIGHT, NODE_WIDTH, StableLayout } from "./layout";
import { around, type Flow, type Stage, statusOf, widths } from "./model";
import { StageNode, type StageNodeType } from "./StageNode";
import { line, rateOf } from "./words";

interface PictureProps {
  stages: Stage[];
  flows: Flow[];
  selected?: string;
  /** Grows when somebody chooses a stage beside the picture: then it is brought into view. */
  shows: number;
  onSelect: (id: string | undefined) => void;
}

/** Known beforehand, so that nobody measures each stage before its edges can be drawn. */
const sizeOf = (height: number) => ({
  measured: { width: NODE_WIDTH, height },
  handles: [
    { type: "target" as const, position: Position.Left, x: 0, y: height / 2, width: 1, height: 1 },
    { type: "source" as const, position: Position.Right, x: NODE_WIDTH - 1, y: height / 2, width: 1, height: 1 },
  ],
});
const TYPES = { stage: StageNode };
const FIT = { padding: { x: 0.06, top: 0.06, bottom: "60px" as const }, maxZoom: 1 }; // the key is below

/** The stages and what flows between them. New numbers move nothing: neither stages nor the viewport. */
export function Picture(props: PictureProps) {
  return (
    <ReactFlowProvider>
      <Canvas {...props} />
    </ReactFlowProvider>
  );
}

function Canvas({ stages, flows, selected, shows, onSelect }: PictureProps) {
  const scheme = useComputedColorScheme("light");
  const layout = useRef(new StableLayout());
  const places = layout.current.of(stages, flows);
  const near = useMemo(() => (selected ? around(selected, flows) : null), [selected, flows]);
  const nodes = useMemo(() => nodesOf(stages, places, selected, near), [stages, places, selected, near]);
  const edges = useMemo(() => edgesOf(flows, selected), [flows, selected]);
  useShown(selected, shows);
  return (
    <ReactFlow
      className={classes.flow}
      colorMode={scheme}
      nodes={nodes}
      edges={edges}
      nodeTypes={TYPES}
      onNodeClick={(_, node) => onSelect(node.id)}
      onPaneClick={() => onSelect(undefined)}
      onNodesChange={(changes) => {
        for (const change of changes) if (change.type === "select" && change.selected) onSelect(change.id);
      }}
      nodesDraggable={false}
      nodesConnectable={false}
      edgesFocusable={false}
      deleteKeyCode={null}
      onlyRenderVisibleElements={stages.length > 80}
      fitView
      fitViewOptions={FIT}
      minZoom={0.05}
      maxZoom={2}
      aria-label="The data plane from sources to ranks"
    >
      <Controls showInteractive={false} fitViewOptions={FIT} position="top-right" />
    </ReactFlow>
  );
}

/** Bring a stage into view that was chosen beside the picture. */
function useShown(selected: string | undefined, shows: number): void {
  const { fitView } = useReactFlow();
  // biome-ignore lint/correctness/useExhaustiveDependencies: only a choice moves the viewport
  useEffect(() => {
    if (shows > 0 && selected) void fitView({ nodes: [{ id: selected }], maxZoom: 1, padding: 1.4, duration: 0 });
  }, [shows]);
}

function nodesOf(
  stages: Stage[],
  places: Map<string, { x: number; y: number }>,
  selected: string | undefined,
  near: Set<string> | null,
): StageNodeType[] {
  return stages.map((stage) => {
    const { x, y } = places.get(stage.id) ?? { x: 0, y: 0 };
    const height = heightOf(stage);
    return {
      id: stage.id,
      type: "stage",
      position: { x, y: y + (NODE_HEIGHT - height) / 2 },
      ...sizeOf(height),
      data: { stage, height, isNear: near === null || near.has(stage.id) },
      selected: stage.id === selected,
      ariaLabel: line(stage, statusOf(stage)),
    };
  });
}

function edgesOf(flows: Flow[], selected: string | undefined): Edge[] {
  const width = widths(flows);
  return flows.map((flow, i) => {
    const isNear = !selected || flow.from === selected || flow.to === selected;
    const colour = selected && isNear ? "var(--lm-accent)" : "var(--lm-line-strong)";
    return {
      id: `${flow.from}>${flow.to}`,
      source: flow.from,
      target: flow.to,
      focusable: false,
      label: selected && isNear ? (rateOf(flow) ?? undefined) : undefined,
      style: { strokeWidth: width[i], stroke: colour, opacity: isNear ? 0.75 : 0.18 },
      markerEnd: { type: MarkerType.ArrowClosed, color: colour, width: 10, height: 10 },
    };
  });
}
