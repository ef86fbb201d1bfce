import { Skeleton } from "@mantine/core";
import { useMemo, useState } from "react";
import { ChartWithTable, type Column, DataTable, formatExact, ProblemNotice, Segmented } from "../ui";
import classes from "./balance.module.css";
import { Plot } from "./Plot";
import { type RankCosts, useRankCosts } from "./query";
import type { Lines } from "./series";

const SERIES = [
  { label: "cost, × mean", colour: "--lm-series-4", kind: "bars" as const },
  { label: "tokens, × mean", colour: "--lm-series-1", kind: "steps" as const, width: 1.25 },
];

const LEAST = 0.02;

/** Around 1, at least 2 % to either side. */
function around(columns: number[][]): [number, number] {
  const furthest = columns.flat().reduce((most, value) => Math.max(most, Math.abs(value - 1)), LEAST);
  return [1 - furthest * 1.08, 1 + furthest * 1.08];
}

interface StepRanksProps {
  run: string;
  stream: string;
  step: number | undefined;
  /** Those that came with the steps. */
  known: RankCosts | null;
}

/** Cost and tokens of each dp rank in one step. */
export function StepRanks({ run, stream, step, known }: StepRanksProps) {
  const { data, error, refetch } = useRankCosts(run, stream, step, known);
  const [order, setOrder] = useState("rank");
  const sorted = useMemo(() => (data ? ordered(data, order) : null), [data, order]);
  if (error && !data) return <ProblemNotice error={error} onRetry={() => void refetch()} />;
  if (!sorted || !data) return <Skeleton height={300} radius="md" />;
  const worst = sorted.reduce((most, i) => Math.max(most, data.cost[i] ?? 0), 0);
  const mean = data.tokens.reduce((sum, count) => sum + count, 0) / Math.max(data.tokens.length, 1) || 1;
  const cost = sorted.map((i) => data.cost[i] ?? 1);
  const tokens = sorted.map((i) => (data.tokens[i] ?? mean) / mean);
  const drawn: Lines = [sorted.map((_, x) => x), cost, tokens];
  return (
    <ChartWithTable
      title={`Ranks in step ${formatExact(data.step)}`}
      aside={
        <>
          <span className={classes.said}>
            {data.dp.length} {data.is_grouped ? "groups of dp ranks" : "dp ranks"}, costliest {worst.toFixed(3)} × mean
          </span>
          <Segmented
            aria-label="Order of the ranks"
            value={order}
            onChange={setOrder}
            data={[
              { value: "rank", label: "By rank" },
              { value: "cost", label: "By cost" },
            ]}
          />
        </>
      }
      chart={
        <Plot
          label={`Cost and tokens of ${data.dp.length} dp ranks in step ${data.step}; the costliest has ${worst.toFixed(3)} times the mean.`}
          lines={drawn}
          series={SERIES}
          height={236}
          format={(value) => value.toFixed(3)}
          within={around([cost, tokens])}
          base={1}
          across={order === "cost" ? "place" : "dp rank"}
        />
      }
      table={<RankTable ranks={data} order={sorted} />}
    />
  );
}

function ordered(ranks: RankCosts, order: string): number[] {
  const all = ranks.dp.map((_, i) => i);
  return order === "cost" ? all.sort((a, b) => (ranks.cost[b] ?? 0) - (ranks.cost[a] ?? 0)) : all;
}

const PAGE = 100;

function RankTable({ ranks, order }: { ranks: RankCosts; order: number[] }) {
  const [most, setMost] = useState(PAGE);
  const columns: Column<number>[] = [
    {
      key: "dp",
      title: ranks.is_grouped ? "dp rank, first of group" : "dp rank",
      isNumber: true,
      cell: (i) => ranks.dp[i],
    },
    { key: "cost", title: "Cost, × mean", isNumber: true, cell: (i) => ranks.cost[i]?.toFixed(4) },
    { key: "tokens", title: "Tokens", isNumber: true, cell: (i) => formatExact(ranks.tokens[i] ?? 0) },
  ];
  return (
    <DataTable
      caption={`Cost and tokens by dp rank in step ${ranks.step}`}
      columns={columns}
      rows={order.slice(0, most)}
      rowKey={(i) => ranks.dp[i] as number}
      onMore={most < order.length ? () => setMost(most + PAGE) : undefined}
      maxHeight="50vh"
    />
  );
}
