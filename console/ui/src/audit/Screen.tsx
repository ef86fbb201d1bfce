import { Button, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { FormEvent } from "react";
import { type Column, DataTable, EmptyState, formatExact, Icon, Page, ProblemNotice, Time } from "../ui";
import classes from "./audit.module.css";
import { toCsv } from "./csv";
import { type Line, readAll, useAudit } from "./query";
import { type AuditSearch, route } from "./route";

export function Screen() {
  const search = route.useSearch();
  const query = useAudit(search);
  const lines = query.data?.pages.flat() ?? [];
  return (
    <Page
      title="Audit"
      lead={
        query.data && (
          <span className="lm-num">{`${formatExact(lines.length)}${query.hasNextPage ? "+" : ""} changes and refusals, newest first`}</span>
        )
      }
      actions={<Filters />}
    >
      {query.error && <ProblemNotice error={query.error} onRetry={() => void query.refetch()} />}
      {(query.data || !query.error) && (
        <div className={classes.box}>
          <DataTable
            caption="Audit log"
            columns={COLUMNS}
            rows={lines}
            rowKey={(line) => line.number}
            isLoading={query.isPending}
            onMore={query.hasNextPage ? () => void query.fetchNextPage() : undefined}
            isLoadingMore={query.isFetchingNextPage}
            empty={<EmptyState title="Nothing was changed, and nobody was refused anything." />}
          />
        </div>
      )}
    </Page>
  );
}

/** Filters act when they are sent, so that half a name is not looked for. */
function Filters() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const typed = (name: keyof AuditSearch) => String(form.get(name) ?? "").trim() || undefined;
    const action = typed("action")?.replaceAll(" ", "_"); // as the log has it
    void navigate({ search: { author: typed("author"), action, run: typed("run") } });
  };
  const field = (name: keyof AuditSearch, label: string) => (
    <TextInput
      key={`${name} ${search[name] ?? ""}`}
      name={name}
      label={label}
      className={classes.filter}
      data-search={name === "author" || undefined}
      defaultValue={search[name] ?? ""}
    />
  );
  return (
    <form className={classes.filters} onSubmit={submit}>
      {field("author", "Who")}
      {field("action", "What")}
      {field("run", "Run")}
      <Button type="submit" variant="default">
        Filter
      </Button>
      <Export filter={search} />
    </form>
  );
}

function Export({ filter }: { filter: AuditSearch }) {
  const save = useMutation({
    mutationFn: async () => {
      const url = URL.createObjectURL(new Blob([toCsv(await readAll(filter))], { type: "text/csv" }));
      const link = Object.assign(document.createElement("a"), { href: url, download: "loadmaster-audit.csv" });
      link.click();
      URL.revokeObjectURL(url);
    },
  });
  return (
    <Button
      variant="default"
      onClick={() => save.mutate()}
      loading={save.isPending}
      leftSection={<Icon name="download" size={13} />}
    >
      CSV
    </Button>
  );
}

const COLUMNS: Column<Line>[] = [
  { key: "at", title: "When", width: "190px", cell: (line) => <Time at={line.at} /> },
  { key: "author", title: "Who", cell: (line) => <b className={classes.who}>{line.author}</b> },
  { key: "action", title: "What", cell: (line) => line.action.replaceAll("_", " ") },
  {
    key: "run",
    title: "Run",
    cell: (line) =>
      line.run ? (
        <Link to="/runs/$run" params={{ run: line.run }}>
          {line.run}
        </Link>
      ) : (
        ""
      ),
  },
  { key: "revision", title: "Revision", isNumber: true, cell: (line) => line.revision ?? "" },
  { key: "message", title: "Why", cell: (line) => <Why line={line} /> },
];

function Why({ line }: { line: Line }) {
  const details = Object.entries(line.details);
  return (
    <>
      {line.message}
      {details.length > 0 && (
        <details className={classes.details}>
          <summary>Details</summary>
          <dl>
            {details.map(([name, value]) => (
              <div key={name}>
                <dt>{name.replaceAll("_", " ")}</dt>
                <dd>{typeof value === "string" ? value : JSON.stringify(value)}</dd>
              </div>
            ))}
          </dl>
        </details>
      )}
    </>
  );
}
