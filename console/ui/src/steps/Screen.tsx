import { Skeleton } from "@mantine/core";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { useRun } from "../app/useRun";
import { useShortcuts, useShortcutsWish } from "../app/useShortcuts";
import { Command, EmptyState, formatExact, Page, Panel, ProblemNotice, StatusMark, type Tone } from "../ui";
import { coordsOf, encodedOnly, type Microbatch, microbatches, perRank, worldSize } from "./batch";
import { Document } from "./Document";
import { type Bounds, explainCommand, go, KEYS, type Spot } from "./place";
import { type StepView, useStep, useStream } from "./query";
import { Shares } from "./Shares";
import classes from "./steps.module.css";
import { Where } from "./Where";

/** What one rank's batch of a step holds, and why. */
export function Screen() {
  const { run, stream } = useRun();
  const spot = useSpot();
  const query = useStep(run, stream, spot);
  const bounds = useBounds(run, stream, query.data);
  const move = useMove(run);
  const [isOn] = useShortcutsWish();
  const shortcuts = useMemo(
    () => Object.entries(KEYS).map(([keys, to]) => ({ keys, what: to, run: () => move(go(spot, to, bounds)) })),
    [spot, bounds, move],
  );
  useShortcuts(shortcuts, isOn);
  const view = query.data;
  return (
    <Page
      title={`Step ${formatExact(spot.step)}, rank ${spot.rank}`}
      run={run}
      lead={view && <Lead view={view} rank={spot.rank} />}
      actions={<Where spot={spot} bounds={bounds} onMove={move} />}
    >
      {query.error && <ProblemNotice error={query.error} onRetry={() => void query.refetch()} />}
      {!view && !query.error && <Skeleton height={520} radius="md" />}
      {view && <Batch run={run} stream={stream} spot={spot} view={view} isOld={query.isPlaceholderData} />}
    </Page>
  );
}

function useSpot(): Spot {
  const { step = "0" } = useParams({ strict: false });
  const { rank = 0, microbatch } = useSearch({ strict: false });
  return useMemo(
    () => ({ step: Math.max(0, Number.parseInt(step, 10) || 0), rank, microbatch }),
    [step, rank, microbatch],
  );
}

function useMove(run: string): (spot: Spot) => void {
  const navigate = useNavigate();
  return useMemo(
    () =>
      ({ step, rank, microbatch }: Spot) =>
        void navigate({
          to: "/runs/$run/steps/$step",
          params: { run, step: String(step) },
          search: (before) => ({ ...before, rank, microbatch }),
          replace: true,
        }),
    [navigate, run],
  );
}

function useBounds(run: string, stream: string, view: StepView | undefined): Bounds {
  const { data } = useStream(run, stream);
  return useMemo(
    () => ({
      first: 0,
      planned: data?.planned ?? (view ? view.step + 2 : 1),
      worldSize: view ? worldSize(view.mesh) : 1,
      perRank: view ? perRank(view) : 1,
    }),
    [data, view],
  );
}

const STATES: Record<string, { tone: Tone; word: string }> = {
  delivered: { tone: "ok", word: "consumed by all ranks" },
  planned: { tone: "busy", word: "planned" },
  "left out": { tone: "idle", word: "left out on a resume" },
};

function Lead({ view, rank }: { view: StepView; rank: number }) {
  const { tone, word } = STATES[view.state] ?? { tone: "unknown" as const, word: view.state };
  const coords = Object.entries(coordsOf(view.mesh, rank));
  return (
    <>
      <StatusMark tone={tone} word={word} />
      <span>revision {view.revision}</span>
      <span title={view.lineage.join("\n")}>generation {view.generation}</span>
      <span>{coords.map(([axis, at]) => `${axis} ${at}`).join(" · ")}</span>
      <span>
        {formatExact(view.num_pieces)} pieces and {formatExact(view.num_tokens)} tokens in the step
      </span>
      <code title="SHA-256 of the step's plan">{view.digest.slice(0, 12)}</code>
    </>
  );
}

interface BatchProps {
  run: string;
  stream: string;
  spot: Spot;
  view: StepView;
  isOld: boolean;
}

function Batch({ run, stream, spot, view, isOld }: BatchProps) {
  const dp = coordsOf(view.mesh, spot.rank).dp ?? 0;
  const found = microbatches(view.pieces, dp);
  const foreign = encodedOnly(view.pieces, dp);
  return (
    <div className={classes.split} aria-busy={isOld} data-old={isOld || undefined}>
      <div className={classes.batches}>
        {view.notes?.length ? <Notes notes={view.notes} /> : null}
        {found.length === 0 && <EmptyState title="This rank's batch is empty." />}
        {found.map((microbatch) => (
          <Pieces key={microbatch.number} run={run} view={view} microbatch={microbatch} />
        ))}
        {foreign.length > 0 && (
          <Panel
            title={`Images that rank ${spot.rank} encodes for others`}
            aside={<span>{foreign.length} documents</span>}
          >
            {foreign.map((piece) => (
              <Document
                key={piece.sample}
                {...{ run, piece }}
                step={view.step}
                revision={view.revision}
                seqLen={view.seq_len}
              />
            ))}
          </Panel>
        )}
      </div>
      <div className={classes.side}>
        <Panel title="The same in a shell">
          <Command text={explainCommand(location.origin, run, stream, spot)} />
          <p className={classes.keys}>
            <kbd>p</kbd> <kbd>n</kbd> step, <kbd>k</kbd> <kbd>j</kbd> rank, <kbd>[</kbd> <kbd>]</kbd> microbatch
          </p>
        </Panel>
        <Shares view={view} />
      </div>
    </div>
  );
}

/** Why something cannot be told; the words of whoever failed are below. */
function Notes({ notes }: { notes: string[] }) {
  const sources = new Set(notes.map((note) => note.split(":")[0]));
  return (
    <details className={classes.notes}>
      <summary>
        Rows and text of {sources.size} {sources.size === 1 ? "source" : "sources"} cannot be told: no loader of{" "}
        {sources.size === 1 ? "it" : "them"} answers.
      </summary>
      <ul>
        {[...new Set(notes)].map((note) => (
          <li key={note}>{note}</li>
        ))}
      </ul>
    </details>
  );
}

function Pieces({ run, view, microbatch }: { run: string; view: StepView; microbatch: Microbatch }) {
  const known = `${formatExact(microbatch.tokens)} of ${formatExact(view.seq_len)} tokens`;
  return (
    <Panel
      title={`Microbatch ${microbatch.number}`}
      aside={
        <span>
          {microbatch.pieces.length} documents, {known}
        </span>
      }
    >
      <Fill microbatch={microbatch} seqLen={view.seq_len} />
      {microbatch.pieces.map((piece) => (
        <Document
          key={`${piece.slot}/${piece.sample}`}
          {...{ run, piece }}
          step={view.step}
          revision={view.revision}
          seqLen={view.seq_len}
        />
      ))}
    </Panel>
  );
}

/** How the documents lie in the microbatch, in order. */
function Fill({ microbatch, seqLen }: { microbatch: Microbatch; seqLen: number }) {
  return (
    <div className={classes.fill} aria-hidden="true">
      {microbatch.pieces.map((piece, i) => (
        <span
          hidden={piece.num_tokens <= 0}
          key={`${piece.slot}/${piece.sample}`}
          style={{ width: `${(100 * Math.max(piece.num_tokens, 0)) / seqLen}%` }}
          data-odd={i % 2 === 1 || undefined}
          title={`slot ${piece.slot}: ${piece.source}, ${formatExact(piece.num_tokens)} tokens`}
        />
      ))}
    </div>
  );
}
