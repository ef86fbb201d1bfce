import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";
import { early } from "./scripts/early.ts";

/** Where `npm run dev` finds a planner: LOADMASTER_PLANNER=http://127.0.0.1:8421 npm run dev */
const planner = process.env.LOADMASTER_PLANNER ?? "http://127.0.0.1:8421";

/** What every page runs comes in few files: browsers ask for six at a time. */
const SHELL = [
  /node_modules\/(react|react-dom|scheduler|use-sync-external-store|@tanstack|openapi-fetch|@mantine\/hooks)\//,
  /@mantine\/core\/esm\/(core|components\/(Button|UnstyledButton|Loader|Transition|Input|InputBase|NativeSelect|Skeleton))\//,
  /\/ui\/src\/ui\//,
];
const isShell = (id: string) => SHELL.some((each) => each.test(id));

export default defineConfig({
  plugins: [react(), early()],
  build: {
    outDir: "../loadmaster_console/bundle",
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    manifest: "manifest.json",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 800,
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "shell", test: isShell }] } } },
  },
  // Host stays that of the page: the planner compares Origin with it.
  server: { proxy: { "/api": { target: planner, timeout: 0 } } },
});
