import { EmptyState, Page } from "../ui";

export function Screen() {
  return (
    <Page title="Access">
      <EmptyState title="Nothing to show yet." />
    </Page>
  );
}
