import { defineConfig } from "vite";

const headers = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

export default defineConfig({
  server: { headers },
  preview: { headers },
  // The optimizer would separate the module from its worker and wasm files.
  optimizeDeps: { exclude: ["wrinklefree"] },
});
