import { Button, CopyButton } from "@mantine/core";
import type { ReactNode } from "react";
import { asProblem } from "../api/problem";
import { Icon } from "./icons";
import classes from "./ui.module.css";

/** A command to copy. */
export function Command({ text }: { text: string }) {
  return (
    <div className={classes.command}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <code tabIndex={0}>{text}</code>
      <CopyButton value={text}>
        {({ copied, copy }) => (
          <Button
            variant="subtle"
            size="compact-xs"
            onClick={copy}
            leftSection={<Icon name={copied ? "ok" : "copy"} size={13} />}
          >
            {copied ? "Copied" : "Copy"}
          </Button>
        )}
      </CopyButton>
    </div>
  );
}

/** Nothing is there, why, and what to do about it. */
export function EmptyState({ title, children, command }: { title: string; children?: ReactNode; command?: string }) {
  return (
    <div className={classes.empty}>
      <p className={classes.emptyTitle}>{title}</p>
      {children && <div className="lm-muted">{children}</div>}
      {command && <Command text={command} />}
    </div>
  );
}

/** What the planner refused or could not do, in its own words. */
export function ProblemNotice({ error, onRetry, title }: { error: unknown; onRetry?: () => void; title?: string }) {
  const problem = asProblem(error);
  return (
    <div className={classes.problem} role="alert">
      <Icon name="bad" />
      <div className={classes.problemText}>
        {title && <strong>{title}</strong>}
        <span>{problem.message}</span>
        <span className={classes.problemCode}>{problem.code}</span>
      </div>
      {onRetry && (
        <Button variant="default" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}
