// Prints what the first paint of a page costs, and fails when its JavaScript outgrows the budget.
import { readFileSync } from "node:fs";
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
