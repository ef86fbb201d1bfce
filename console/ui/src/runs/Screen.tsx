import { EmptyState, Page } from "../ui";

export function Screen() {
  return (
    <Page title="Runs">
      <EmptyState title="Nothing to show yet." />
    </Page>
  );
}
