import { defineConfig } from "vite";

const headers = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

export default defineConfig({
  server: { headers },
  preview: { headers },
  // The development server would move the module away from its worker and wasm files.
  optimizeDeps: { exclude: ["wrinklefree"] },
});
