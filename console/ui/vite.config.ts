import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

/** Where `npm run dev` finds a planner: LOADMASTER_PLANNER=http://127.0.0.1:8421 npm run dev */
const planner = process.env.LOADMASTER_PLANNER ?? "http://127.0.0.1:8421";

export default defineConfig({
  plugins: [react()],
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
  },
  // Host stays that of the page: the planner compares Origin with it.
  server: { proxy: { "/api": { target: planner, timeout: 0 } } },
});
