import { useRun } from "../app/useRun";
import { EmptyState, Page } from "../ui";

export function Screen() {
  const { run } = useRun();
  return (
    <Page title="Steps" run={run}>
      <EmptyState title="Nothing to show yet." />
    </Page>
  );
}
