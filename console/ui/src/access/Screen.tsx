import { useSession } from "../api/session";
import { Page, Panel } from "../ui";
import classes from "./access.module.css";
import { Sessions } from "./Sessions";
import { Tokens } from "./Tokens";

const MODES: Record<string, string> = {
  off: "This planner asks nobody who they are.",
  local: "On this machine anybody may look; what changes something needs a name.",
  token: "Everything needs a name.",
};

const ROLES: [string, string][] = [
  ["viewer", "sees everything"],
  ["editor", "keeps drafts and previews them"],
  ["publisher", "changes what a run trains on: publish, restore, hold, retime, cancel; lets a paused run go on"],
  ["admin", "hands out tokens, ends other people’s sessions"],
  ["process", "apart from the others: what loaders, constructors and trainers may do"],
  ["metrics", "apart too: reads /metrics, nothing else"],
];

export function Screen() {
  const session = useSession();
  const who = session.isKnown ? `You are ${session.name}, ${session.role}.` : "Nobody is signed in.";
  return (
    <Page title="Access" lead={<span>{`${who} ${MODES[session.access] ?? ""}`.trim()}</span>}>
      <Sessions />
      <Tokens />
      <Panel title="Roles" aside={<span>each may do what those above it may</span>}>
        <dl className={classes.roles}>
          {ROLES.map(([role, what]) => (
            <div key={role} data-mine={role === session.role || undefined}>
              <dt>{role}</dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
      </Panel>
    </Page>
  );
}
