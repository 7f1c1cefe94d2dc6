/** The TypeScript that README.md and web/README.md show: it compiles and runs. Needs `web/build`. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { transformSync } from "esbuild";
import { expect, test } from "vitest";

const web = fileURLToPath(new URL("../..", import.meta.url));

/** Names that the block about loading uses and the page does not define. */
const DECLARED = `
declare const input: { files: FileList };
declare const base: string;
declare const arrayBuffer: ArrayBuffer;`;

function blocks(page: string): string[] {
  const text = readFileSync(join(web, page), "utf8");
  return [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((match) => match[1]!);
}

const [root, [generate, stream, chat, open, kept, options, ...rest]] = [
  blocks("../README.md"),
  blocks("README.md"),
];

/** Modules: blocks that follow one another, with values for names that their page does not define. */
const MODULES = {
  root: [`const show = (text: string) => console.log(text);`, ...root],
  story: [generate, `console.log(story);`, stream, chat],
  options: [
    `import { load } from "wrinklefree";`,
    `const engine = await load(undefined, { threads: 1 });`,
    `const prompt = "Hello!", signal = new AbortController().signal;`,
    `const messages = [{ role: "user", content: prompt }];`,
    options,
    `console.log(text);`,
    `await engine.dispose();`,
  ],
  kept: [
    `const url = "https://models.example/m.gguf";`,
    kept,
    `console.log("nothing is kept in Node");`,
  ],
  // Its addresses stand for the reader's own, so it is compiled only.
  open: [`import { load } from "wrinklefree";`, DECLARED, open],
};

/** Calls `use` with a folder inside the package, where `wrinklefree` is the package itself. */
function inFolder(use: (folder: string) => void): void {
  const folder = mkdtempSync(join(web, "tests/package/.readme-"));
  try {
    use(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("each block belongs to a module", () => {
  expect(rest).toEqual([]);
  expect(root).toHaveLength(1);
  expect(options).toBeDefined();
});

test("the blocks compile against the package's types", () => {
  inFolder((folder) => {
    const names = Object.entries(MODULES).map(([name, parts]) => {
      writeFileSync(join(folder, `${name}.ts`), `${parts.join("\n")}\nexport {};`);
      return join(folder, `${name}.ts`);
    });
    const flags = "--noEmit --strict --target ES2022 --module NodeNext --types node".split(" ");
    const lib = ["--lib", "ES2022,DOM,DOM.Iterable"];
    const tsc = join(web, "node_modules/.bin/tsc");
    try {
      execFileSync(tsc, [...flags, ...lib, ...names], { cwd: web });
    } catch (error) {
      throw new Error(String((error as { stdout: Buffer }).stdout));
    }
  });
}, 60_000);

test.each(["root", "story", "options", "kept"] as const)(
  "the blocks of %s run in Node",
  (name) => {
    inFolder((folder) => {
      const { code } = transformSync(MODULES[name].join("\n"), { loader: "ts", format: "esm" });
      writeFileSync(join(folder, "main.mjs"), code);
      const printed = execFileSync(process.execPath, [join(folder, "main.mjs")], {
        timeout: 60_000,
      });
      expect(printed.toString().trim().length).toBeGreaterThan(20);
    });
  },
  60_000,
);
