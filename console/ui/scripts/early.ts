import type { Plugin, Rollup } from "vite";

type Chunk = Rollup.OutputChunk;

const SCREEN = /\/src\/([a-z]+)\/(Screen|Newest|SignIn)\.tsx$/;
const SOURCE = "src/early.ts";
/** The parser waits for this one. */
const BEFORE = '<script src="/scheme.js">';

/** Puts `src/early.ts` before the bundle, and beside it which scripts each screen needs. */
export function early(): Plugin {
  return {
    name: "early",
    apply: "build",
    buildStart() {
      this.emitFile({ type: "chunk", id: SOURCE });
    },
    renderChunk(code, chunk) {
      return chunk.facadeModuleId?.endsWith(`/${SOURCE}`) ? `(() => {${code}})();` : null; // a module would run later
    },
    transformIndexHtml: {
      order: "post",
      handler(html, { bundle = {} }) {
        const chunks = Object.values(bundle).filter((each): each is Chunk => each.type === "chunk");
        const entry = chunks.find((chunk) => chunk.facadeModuleId?.endsWith(`/${SOURCE}`));
        if (!entry) throw new Error(`${SOURCE} is no chunk of the bundle`);
        if (entry.imports.length > 0) throw new Error(`${SOURCE} must not wait for ${entry.imports.join(", ")}`);
        const told = JSON.stringify(ofScreens(chunks)).replaceAll('"', "&quot;");
        return html.replace(BEFORE, `<script async src="/${entry.fileName}" data-chunks="${told}"></script>${BEFORE}`);
      },
    },
  };
}

/** Screen -> scripts beyond those of every page. */
function ofScreens(chunks: readonly Chunk[]): Record<string, string[]> {
  const named = new Map(chunks.map((chunk) => [chunk.fileName, chunk]));
  const main = chunks.find((chunk) => chunk.isEntry && chunk.facadeModuleId?.endsWith("index.html"));
  const first = new Set(main ? filesOf(main, named) : []);
  return Object.fromEntries(
    chunks.flatMap((chunk) => {
      const found = SCREEN.exec(chunk.facadeModuleId ?? "");
      if (!found) return [];
      return [[nameOf(found[1] ?? "", found[2] ?? ""), filesOf(chunk, named).filter((file) => !first.has(file))]];
    }),
  );
}

function nameOf(folder: string, file: string): string {
  if (file === "SignIn") return "sign-in";
  return file === "Screen" ? folder : `${folder}/${file}`;
}

function filesOf(chunk: Chunk, named: ReadonlyMap<string, Chunk>, seen = new Set<string>()): string[] {
  if (seen.has(chunk.fileName)) return [];
  seen.add(chunk.fileName);
  const imported = chunk.imports.flatMap((name) => {
    const next = named.get(name);
    return next ? filesOf(next, named, seen) : [];
  });
  return [`/${chunk.fileName}`, ...imported];
}
