/** What the planner answers when it refuses or fails: problem+json (RFC 9457), as an error. */
export class Problem extends Error {
  readonly code: string;
  readonly status: number;
  readonly details: Record<string, unknown>;

  constructor(init: { code: string; status: number; detail: string; details?: Record<string, unknown> }) {
    super(init.detail);
    this.name = "Problem";
    this.code = init.code;
    this.status = init.status;
    this.details = init.details ?? {};
  }

  /** Whether the same call may succeed later without anybody changing anything. */
  get isPassing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 502;
  }
}

const text = (value: unknown, otherwise: string) => (typeof value === "string" && value ? value : otherwise);

/** The problem in an answer's body; whatever is no problem+json is told as what it is. */
export function problemOf(status: number, body: unknown): Problem {
  if (body !== null && typeof body === "object") {
    const told = body as Record<string, unknown>;
    return new Problem({
      code: text(told.code, `HTTP_${status}`),
      status,
      detail: text(told.detail, text(told.title, `the planner answered ${status}`)),
      details: (told.details ?? {}) as Record<string, unknown>,
    });
  }
  return new Problem({ code: `HTTP_${status}`, status, detail: `the planner answered ${status}` });
}

/** A call that got no answer at all. */
export function unreachable(cause: unknown): Problem {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new Problem({ code: "UNREACHABLE", status: 0, detail: `the planner cannot be reached (${why})` });
}

/** Any error as a problem, for those that show it. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem({
    code: "CONSOLE",
    status: -1,
    detail: error instanceof Error ? error.message : String(error),
  });
}
