import { type ErrorComponentProps, Link } from "@tanstack/react-router";
import { EmptyState, Page, ProblemNotice } from "../ui";

/** An address that is no page. */
export function Missing() {
  return (
    <main id="main">
      <Page title="No such page">
        <EmptyState title="Nothing is at this address.">
          It may be from a newer or older console. <Link to="/runs">All runs</Link>
        </EmptyState>
      </Page>
    </main>
  );
}

/** A screen that failed; the others go on. */
export function ScreenError({ error, reset }: ErrorComponentProps) {
  return (
    <Page title="This screen failed">
      <ProblemNotice error={error} onRetry={reset} />
    </Page>
  );
}
