import { Skeleton } from "@mantine/core";
import { Navigate } from "@tanstack/react-router";
import { useRun } from "../app/useRun";
import { EmptyState, Page, ProblemNotice } from "../ui";
import { useStream } from "./query";

/** Leads to the newest step that is worth a look: consumed by all ranks, or planned. */
export function Newest() {
  const { run, stream } = useRun();
  const { data, error, refetch } = useStream(run, stream);
  if (data && data.planned > 0) {
    const step = Math.max(0, (data.acknowledged || data.planned) - 1);
    return (
      <Navigate to="/runs/$run/steps/$step" params={{ run, step: String(step) }} search={(before) => before} replace />
    );
  }
  return (
    <Page title="Steps" run={run}>
      {error && <ProblemNotice error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Skeleton height={420} radius="md" />}
      {data && (
        <EmptyState title={`No step of ${stream} is planned yet.`}>
          {data.waiting_text || "Steps are planned as soon as all ranks have joined."}
        </EmptyState>
      )}
    </Page>
  );
}
