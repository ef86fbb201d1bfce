import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { type Column, DataTable, formatCount, formatExact, formatShare } from "../ui";
import type { Balance } from "./query";

interface StepTableProps {
  run: string;
  view: Balance;
  step?: number;
  onStep: (step: number) => void;
}

const PAGE = 50;

/** The steps of the window, newest first. */
export function StepTable({ run, view, step, onStep }: StepTableProps) {
  const [most, setMost] = useState(PAGE);
  const rows = view.steps.step.map((_, i) => i).reverse();
  return (
    <DataTable
      caption="Steps, newest first"
      columns={columns(run, view.steps, onStep)}
      rows={rows.slice(0, most)}
      rowKey={(i) => view.steps.step[i] as number}
      isSelected={(i) => view.steps.step[i] === step}
      onMore={most < rows.length ? () => setMost(most + PAGE) : undefined}
      maxHeight="50vh"
    />
  );
}

const dim = (text: string | null) => text ?? <span className="lm-muted">not kept</span>;

function columns(run: string, steps: Balance["steps"], onStep: (step: number) => void): Column<number>[] {
  const at = (i: number) => steps.step[i] as number;
  const fixed = (value: number | null | undefined, digits: number) => (value == null ? null : value.toFixed(digits));
  return [
    {
      key: "step",
      title: "Step",
      isNumber: true,
      cell: (i) => (
        <button type="button" className="lm-pick" onClick={() => onStep(at(i))}>
          {formatExact(at(i))}
        </button>
      ),
    },
    { key: "revision", title: "Revision", isNumber: true, cell: (i) => steps.revision[i] },
    { key: "generation", title: "Generation", isNumber: true, cell: (i) => steps.generation[i] },
    { key: "tokens", title: "Tokens", isNumber: true, cell: (i) => formatCount(steps.num_tokens[i] ?? 0) },
    {
      key: "fill",
      title: "Fill",
      isNumber: true,
      cell: (i) => dim(steps.fill[i] == null ? null : formatShare(steps.fill[i])),
    },
    { key: "skew", title: "Max / mean", isNumber: true, cell: (i) => dim(fixed(steps.skew[i], 4)) },
    { key: "digest", title: "Digest", cell: (i) => <code className="lm-mono">{steps.digest[i]?.slice(0, 12)}</code> },
    {
      key: "look",
      title: "",
      cell: (i) => (
        <Link to="/runs/$run/steps/$step" params={{ run, step: String(at(i)) }}>
          What it holds
        </Link>
      ),
    },
  ];
}
