import { NativeSelect, NumberInput, TextInput } from "@mantine/core";
import { useState } from "react";
import type { Model } from "../api/client";
import { ROLES, useRefusal } from "../api/session";
import {
  Ago,
  type Column,
  Command,
  DataTable,
  EmptyState,
  GuardedButton,
  Panel,
  ProblemNotice,
  StatusMark,
  Time,
} from "../ui";
import classes from "./access.module.css";
import { type TokenWish, useCreateToken, useRevokeToken, useTokens } from "./query";

/** API tokens: who has one, for what, and the form that hands one out. */
export function Tokens() {
  const refusal = useRefusal("admin");
  const tokens = useTokens();
  const revoke = useRevokeToken();
  return (
    <Panel title="API tokens" aside={<span>for processes, scripts and people without a browser</span>}>
      <CreateToken />
      {revoke.error && <ProblemNotice title="The token was not revoked." error={revoke.error} />}
      {tokens.error && <ProblemNotice error={tokens.error} onRetry={() => void tokens.refetch()} />}
      {refusal ? (
        <p className="lm-muted">The list of tokens is for admins: {refusal.toLowerCase()}.</p>
      ) : (
        <DataTable
          caption="API tokens"
          columns={columnsOf((id) => revoke.mutate(id))}
          rows={tokens.data ?? []}
          rowKey={(token) => token.id}
          isLoading={tokens.isPending}
          expectedRows={3}
          empty={<EmptyState title="No token has been handed out." />}
        />
      )}
    </Panel>
  );
}

const NEW: TokenWish = { name: "", role: "viewer", days: 30 };

function CreateToken() {
  const [wish, setWish] = useState<TokenWish>(NEW);
  const refusal = useRefusal("admin");
  const create = useCreateToken();
  const missing = wish.name.trim() ? "" : "Give it a name first";
  const submit = () => create.mutate({ ...wish, name: wish.name.trim() }, { onSuccess: () => setWish(NEW) });
  return (
    <>
      <div className={classes.form}>
        <TextInput
          label="For"
          placeholder="who or what uses it"
          disabled={refusal !== ""}
          value={wish.name}
          onChange={(event) => setWish({ ...wish, name: event.currentTarget.value })}
        />
        <NativeSelect
          label="Role"
          disabled={refusal !== ""}
          data={[...ROLES, "process", "metrics"]}
          value={wish.role}
          onChange={(event) => setWish({ ...wish, role: event.currentTarget.value as TokenWish["role"] })}
        />
        <NumberInput
          label="Expires after, days"
          placeholder="never"
          disabled={refusal !== ""}
          min={1}
          max={3660}
          allowDecimal={false}
          value={wish.days ?? ""}
          onChange={(days) => setWish({ ...wish, days: typeof days === "number" ? days : null })}
        />
        <GuardedButton needs="admin" reason={missing} onClick={submit} loading={create.isPending}>
          Create token
        </GuardedButton>
      </div>
      {create.error && <ProblemNotice title="No token was made." error={create.error} />}
      {create.data && (
        <div className={classes.fresh} role="status">
          <p>
            The token of <b>{create.data.name}</b>. Copy it now: it is not shown again.
          </p>
          <Command text={create.data.token} />
        </div>
      )}
    </>
  );
}

type Token = Model<"TokenView">;

function columnsOf(revoke: (id: string) => void): Column<Token>[] {
  return [
    { key: "name", title: "For", cell: (token) => <b className={classes.name}>{token.name}</b> },
    { key: "id", title: "Id", cell: (token) => <span className="lm-mono">{token.id}</span> },
    { key: "roles", title: "Role", cell: (token) => token.roles.join(", ") },
    { key: "state", title: "State", cell: (token) => <TokenState token={token} /> },
    {
      key: "used",
      title: "Last used",
      cell: (token) => (token.last_used_at === null ? "never" : <Ago at={token.last_used_at} />),
    },
    {
      key: "by",
      title: "Handed out",
      cell: (token) => (
        <>
          by {token.created_by || "the command line"}, <Ago at={token.created_at} />
        </>
      ),
    },
    {
      key: "expires",
      title: "Expires",
      cell: (token) => (token.expires_at === null ? "never" : <Time at={token.expires_at} />),
    },
    {
      key: "act",
      title: "Change",
      cell: (token) => (
        <GuardedButton
          needs="admin"
          reason={token.revoked_at === null ? "" : "It is revoked already"}
          variant="default"
          size="compact-xs"
          aria-label={`Revoke the token of ${token.name}`}
          onClick={() => revoke(token.id)}
        >
          Revoke
        </GuardedButton>
      ),
    },
  ];
}

function TokenState({ token }: { token: Token }) {
  if (token.revoked_at !== null) return <StatusMark tone="idle" word="revoked" />;
  return token.is_good ? <StatusMark tone="ok" word="good" /> : <StatusMark tone="warn" word="expired" />;
}
