/** The packed package in an empty project: its command runs. Needs `web/build`. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import manifest from "../../package.json" with { type: "json" };

const web = fileURLToPath(new URL("../..", import.meta.url));
const PROMPT = "Tell me a story about a fox named Pip.";
const STORY = "Have you heard of Pip? He was a small fox. Pip was strong and a little proud.\n";

test("npx runs the command of an installed package", () => {
  const folder = mkdtempSync(join(tmpdir(), "wrinklefree-"));
  const npm = (...args: string[]) => execFileSync("npm", [...args, "--silent"], { cwd: web });
  try {
    npm("pack", "--pack-destination", folder);
    const file = join(folder, `wrinklefree-${manifest.version}.tgz`);
    npm("install", "--prefix", folder, "--no-audit", "--no-fund", file);
    const args = ["wrinklefree", "generate", "--temperature", "0", "--max-tokens", "20", PROMPT];
    expect(execFileSync("npx", args, { cwd: folder }).toString()).toBe(STORY);
  } finally {
    rmSync(folder, { recursive: true });
  }
}, 120_000);
