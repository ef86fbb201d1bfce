/** One server-sent event; `data` is still text. */
export interface ServerEvent {
  id: string;
  type: string;
  data: string;
}

/** Takes a stream's text as it comes and gives the events that are complete; comments count as a beat alone. */
export class EventParser {
  private rest = "";
  private id = "";
  private type = "";
  private data: string[] = [];

  /** The events that `chunk` completes. A line may be cut anywhere. */
  push(chunk: string): ServerEvent[] {
    const lines = (this.rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.take(line));
  }

  private take(line: string): ServerEvent[] {
    if (line === "") return this.flush();
    const colon = line.indexOf(":");
    if (colon === 0) return [];
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.data.push(value);
    else if (field === "event") this.type = value;
    else if (field === "id") this.id = value;
    return [];
  }

  private flush(): ServerEvent[] {
    const { data, type } = this;
    this.data = [];
    this.type = "";
    return data.length ? [{ id: this.id, type: type || "message", data: data.join("\n") }] : [];
  }
}
