import { fileURLToPath } from "node:url";
import { type Plugin, defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Inserts the list of files into the service worker. Their names change with their content. */
function listFiles(): Plugin {
  return {
    name: "list-files",
    generateBundle(_, bundle) {
      const worker = bundle["sw.js"];
      if (worker?.type !== "chunk") throw new Error("the build has no sw.js");
      const files = Object.keys(bundle).filter((file) => file !== "sw.js");
      worker.code = worker.code.replaceAll("__FILES__", JSON.stringify(files.sort()));
    },
  };
}

export default defineConfig({
  root: here("."),
  // Relative URLs let the page work under any path.
  base: "./",
  resolve: { alias: { wrinklefree: here("../dist/index.js") } },
  plugins: [listFiles()],
  build: {
    target: "es2022",
    emptyOutDir: true,
    modulePreload: false,
    // The page's content security policy forbids data: URLs.
    assetsInlineLimit: 0,
    rollupOptions: {
      input: { index: here("index.html"), sw: here("sw.ts") },
      output: {
        entryFileNames: ({ name }) => (name === "sw" ? "sw.js" : "assets/[name]-[hash].js"),
      },
    },
  },
});
