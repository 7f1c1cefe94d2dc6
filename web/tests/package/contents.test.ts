/** Contents of the published package. Needs `web/build`. */

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import manifest from "../../package.json" with { type: "json" };

const root = fileURLToPath(new URL("../..", import.meta.url));
const pack = execFileSync("npm", ["pack", "--dry-run", "--json", "--silent"], { cwd: root });
const files: string[] = JSON.parse(pack.toString())[0].files.map((f: { path: string }) => f.path);

const PAGE_MODULES = ["api", "chat", "conversations", "files", "markdown", "messages"];

test("the package has exactly these files", () => {
  const kinds = ["single-simd128", "single-relaxed", "threads-simd128", "threads-relaxed"];
  const scripts = ["cli", "index", "index.node", "worker", "worker.node"];
  const rest = files.filter((file) => !file.startsWith("dist/types/"));
  expect(rest.sort()).toEqual(
    [
      ...["README.md", "THIRD_PARTY.md", "package.json", "dist/default.wf.safetensors"],
      ...["dist/LICENSE-MIT", "dist/LICENSE-APACHE"],
      ...["index.html", "theme.css", "style.css"].map((name) => `dist/page/${name}`),
      ...PAGE_MODULES.map((name) => `dist/page/${name}.js`),
      ...kinds.flatMap((kind) => [`dist/wasm/${kind}.js`, `dist/wasm/${kind}_bg.wasm`]),
      ...scripts.flatMap((name) => [`dist/${name}.js`, `dist/${name}.js.map`]),
    ].sort(),
  );
  expect(files).toContain("dist/types/index.d.ts");
});

test("browsers need no other files", () => {
  expect(manifest).not.toHaveProperty("dependencies");
  for (const name of files.filter((file) => /^dist\/(index|worker|wasm\/.*)\.js$/.test(file))) {
    expect(readFileSync(`${root}/${name}`, "utf8"), name).not.toMatch(
      /^\s*(import|export) .*from /m,
    );
  }
});
