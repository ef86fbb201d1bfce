import { EmptyState, Page } from "../ui";

export function Screen() {
  return (
    <Page title="Audit">
      <EmptyState title="Nothing to show yet." />
    </Page>
  );
}
