// Prints what the first paint of a page costs; fails when its JavaScript outgrows the budget, or when a component of
// Mantine is used without its styles (src/app/mantine.css).
import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const BUNDLE = new URL("../../loadmaster_console/bundle/", import.meta.url);
const BUDGET_KB = 200;
const manifest = JSON.parse(readFileSync(new URL("manifest.json", BUNDLE), "utf8"));

const kilobytes = (file) => gzipSync(readFileSync(new URL(file, BUNDLE)), { level: 9 }).length / 1000;

function reached(key, seen = new Set()) {
  if (!seen.has(key)) {
    seen.add(key);
    for (const next of manifest[key].imports ?? []) reached(next, seen);
  }
  return seen;
}

const total = (keys, pick) => {
  const files = new Set([...keys].flatMap((key) => pick(manifest[key])));
  return [...files].reduce((sum, file) => sum + kilobytes(file), 0);
};
const scripts = (chunk) => (chunk.file.endsWith(".js") ? [chunk.file] : []);
const styles = (chunk) => chunk.css ?? [];

const first = reached("index.html");
const js = total(first, scripts);
console.log(`first paint: ${js.toFixed(1)} kB JS, ${total(first, styles).toFixed(1)} kB CSS (gzip)`);
for (const [key, chunk] of Object.entries(manifest)) {
  if (!chunk.isDynamicEntry) continue;
  const own = [...reached(key)].filter((each) => !first.has(each));
  console.log(`  ${key}: + ${total(own, scripts).toFixed(1)} kB JS, ${total(own, styles).toFixed(1)} kB CSS`);
}
if (js > BUDGET_KB) {
  console.error(`the first paint must stay within ${BUDGET_KB} kB of JavaScript: split a screen off`);
  process.exit(1);
}

const classes = (text) => new Set(text.match(/\bm_[0-9a-f]{6,8}\b/g));
const built = (end) => {
  const names = readdirSync(new URL("assets/", BUNDLE)).filter((name) => name.endsWith(end));
  return names.map((name) => readFileSync(new URL(`assets/${name}`, BUNDLE), "utf8")).join("\n");
};
const known = classes(readFileSync(new URL("../node_modules/@mantine/core/styles.layer.css", import.meta.url), "utf8"));
const styled = classes(built(".css"));
const bare = [...classes(built(".js"))].filter((name) => known.has(name) && !styled.has(name));
if (bare.length > 0) {
  console.error(
    `src/app/mantine.css must import the styles of ${bare.join(", ")}: grep for them in @mantine/core/styles`,
  );
  process.exit(1);
}
