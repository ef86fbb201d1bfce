import type { Model } from "../api/client";
import { useSession } from "../api/session";
import { Ago, type Column, DataTable, EmptyState, GuardedButton, Panel, ProblemNotice, StatusMark, Time } from "../ui";
import classes from "./access.module.css";
import { useEndSession, useSessions } from "./query";

type Head = Model<"SessionHead">;

/** Browsers that are signed in. */
export function Sessions() {
  const { isKnown, access } = useSession();
  const sessions = useSessions();
  const end = useEndSession();
  if (!isKnown) {
    return (
      <Panel title="Browser sessions">
        <EmptyState title="This browser is not signed in." command="loadmaster sign-in">
          {access === "off"
            ? "This planner asks nobody who they are; signing in only gives your changes a name."
            : "Where the planner runs, this prints a link that signs you in once. A token does it too."}
        </EmptyState>
      </Panel>
    );
  }
  return (
    <Panel title="Browser sessions" aside={<span>yours; an admin sees everybody&rsquo;s</span>}>
      {end.error && <ProblemNotice title="The session was not ended." error={end.error} />}
      {sessions.error && <ProblemNotice error={sessions.error} onRetry={() => void sessions.refetch()} />}
      <DataTable
        caption="Browser sessions"
        columns={columnsOf((id) => end.mutate(id))}
        rows={sessions.data ?? []}
        rowKey={(session) => session.id}
        isLoading={sessions.isPending}
        expectedRows={2}
      />
    </Panel>
  );
}

function columnsOf(end: (id: string) => void): Column<Head>[] {
  return [
    {
      key: "name",
      title: "Who",
      cell: (session) => (
        <>
          <b className={classes.name}>{session.name}</b>{" "}
          {session.is_current && <StatusMark tone="ok" word="this browser" />}
        </>
      ),
    },
    { key: "roles", title: "Role", cell: (session) => session.roles.join(", ") },
    {
      key: "agent",
      title: "Browser",
      cell: (session) => (
        <span className={classes.agent} title={session.agent}>
          {session.agent || "not told"}
        </span>
      ),
    },
    { key: "seen", title: "Last seen", cell: (session) => <Ago at={session.seen_at} /> },
    { key: "expires", title: "Ends", cell: (session) => <Time at={session.expires_at} /> },
    {
      key: "act",
      title: "Change",
      cell: (session) => (
        <GuardedButton
          needs="viewer"
          reason={session.is_current ? "Use “Sign out” above for this browser" : ""}
          variant="default"
          size="compact-xs"
          aria-label={`End the session of ${session.name} seen last at ${new Date(session.seen_at * 1000).toISOString()}`}
          onClick={() => end(session.id)}
        >
          End
        </GuardedButton>
      ),
    },
  ];
}
