import type { Line } from "./query";

const FIELDS = ["number", "at", "author", "action", "run", "revision", "message", "details"] as const;

/** A field for CSV (RFC 4180). One that a spreadsheet would take for a formula gets a quote in front. */
export function csvField(value: unknown): string {
  const plain =
    value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(plain) ? `'${plain}` : plain;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The lines as CSV with a header; times as UTC. */
export function toCsv(lines: Line[]): string {
  const row = (line: Line) =>
    FIELDS.map((field) => csvField(field === "at" ? new Date(line.at * 1000).toISOString() : line[field])).join(",");
  return [FIELDS.join(","), ...lines.map(row), ""].join("\r\n");
}
