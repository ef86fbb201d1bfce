import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { formatExact, StatusMark } from "../ui";
import type { PieceView } from "./query";
import classes from "./steps.module.css";
import { why } from "./why";

interface DocumentProps {
  run: string;
  piece: PieceView;
  step: number;
  revision: number;
  seqLen: number;
}

const SHORT = 900;

/** One document of a batch: what it says, where it comes from, and why it is here. */
export function Document({ run, piece, step, revision, seqLen }: DocumentProps) {
  const length = piece.num_tokens >= 0 ? piece.num_tokens : null;
  return (
    <article className={classes.document} aria-label={`Slot ${piece.slot}: ${piece.sample}`}>
      <header className={classes.documentHead}>
        <span className={classes.slot}>{piece.slot}</span>
        <Link to="/runs/$run/sources" params={{ run }} className={classes.source}>
          {piece.source}
        </Link>
        <code className={classes.id}>{piece.sample}</code>
        {piece.verdict !== "ok" && <StatusMark tone="warn" word={piece.verdict} title={piece.reason} />}
        {piece.waited > 0 && (
          <StatusMark tone="idle" word={`waited ${piece.waited}`} title="Steps that it was deferred for" />
        )}
        <span className={classes.length}>
          {length === null ? "length not known" : `${formatExact(length)} tokens`}
          {length !== null && (
            <span className={classes.part} style={{ width: `${Math.max(2, (100 * length) / seqLen)}%` }} />
          )}
        </span>
      </header>
      <Thumbnails piece={piece} />
      <Text piece={piece} />
      <footer className={classes.documentFoot}>
        <ul>
          {why(piece, step, revision).map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
        <dl className={classes.place}>
          <dt>Shard</dt>
          <dd>
            <code>{piece.uri}</code>
          </dd>
          <dt>Place</dt>
          <dd>
            block {piece.block}, {piece.row >= 0 ? `row ${formatExact(piece.row)}` : "row not known"}, position{" "}
            {formatExact(piece.pos)}, lane {piece.lane}, epoch {piece.epoch}
          </dd>
        </dl>
      </footer>
    </article>
  );
}

function Text({ piece }: { piece: PieceView }) {
  const [isOpen, setOpen] = useState(false);
  if (piece.text === null || piece.text === undefined) {
    return <p className={classes.noText}>{piece.reason || "No loader could show its text."}</p>;
  }
  const isLong = piece.text.length > SHORT;
  const shown = isOpen || !isLong ? piece.text : `${piece.text.slice(0, SHORT)}…`;
  return (
    <div className={classes.textBox}>
      <pre className={classes.text} data-testid="document-text" data-is-whole={shown === piece.text}>
        {shown}
      </pre>
      {isLong && (
        <Button variant="subtle" size="compact-xs" onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Show less" : `Show all ${formatExact(piece.text.length)} characters`}
        </Button>
      )}
    </div>
  );
}

function Thumbnails({ piece }: { piece: PieceView }) {
  const { images, more_images: more } = piece;
  if (!images.length && !more) return null;
  return (
    <ul className={classes.images}>
      {images.map((image, i) => (
        <li key={image.src.slice(-40)}>
          <img src={image.src} alt={`${i + 1} of sample ${piece.sample}`} width={image.width} height={image.height} />
        </li>
      ))}
      {more > 0 && <li className="lm-muted">{more} more</li>}
    </ul>
  );
}
