/**
 * The same tokens as `wf-run` gives, from the real modules in Node: every decode mode, with and
 * without threads, with each SIMD that computes right here. After `web/build`; `WF_RUN` names the
 * program (by default target/debug/wf-run).
 */

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type DecodeMode, type Engine, load } from "../../dist/index.node.js";

const program =
  process.env.WF_RUN ?? fileURLToPath(new URL("../../../target/debug/wf-run", import.meta.url));
const prompts = ["Tell me a story about a fox.", "What is the opposite of hot?"];
const modes: DecodeMode[] = ["ar", "verify", "greedy", "iterative", "adaptive"];
const maxTokens = 80;

/** What the native program answers. */
function native(prompt: string, mode: string): { tokens: number[]; text: string } {
  const args = ["generate", "--json", "-n", `${maxTokens}`, "--decode-mode", mode];
  return JSON.parse(execFileSync(program, [...args, "--temperature", "0", prompt]).toString());
}

async function ours(engine: Engine, prompt: string, decodeMode: DecodeMode) {
  const answer = { tokens: [] as number[], text: "" };
  for await (const part of engine.stream(prompt, { decodeMode, maxTokens, temperature: 0 })) {
    answer.tokens.push(...part.tokens.map((token) => token.id));
    answer.text += part.text;
  }
  return answer;
}

for (const threads of [1, 2]) {
  for (const simd of ["simd128", "relaxed"] as const) {
    describe(`${threads} thread(s), ${simd}`, () => {
      let engine: Engine | undefined;
      let missing: string | undefined;

      beforeAll(async () => {
        try {
          engine = await load("default", { threads, simd });
        } catch (error) {
          missing = String(error);
        }
      });
      afterAll(() => engine?.dispose());

      test("runs as asked, or says why not", () => {
        const relaxedMissing = simd === "relaxed" && /relaxed/.test(missing ?? "");
        if (relaxedMissing) console.log(`relaxed SIMD: NOT TESTED in this Node: ${missing}`);
        expect(engine !== undefined || relaxedMissing, missing).toBe(true);
        if (engine) expect(engine.info().threads).toBe(threads);
      });

      test.for(modes)("%s gives the native tokens", async (mode, { skip }) => {
        if (!engine) return skip(missing);
        for (const prompt of prompts) {
          const { tokens, text } = native(prompt, mode);
          expect(await ours(engine, prompt, mode)).toEqual({ tokens, text });
        }
      });

      test("requests at once get what each gets alone", async ({ skip }) => {
        if (!engine) return skip(missing);
        const all = prompts.flatMap((prompt) => modes.map((mode) => [prompt, mode] as const));
        const alone = [];
        for (const [prompt, mode] of all) alone.push(await ours(engine, prompt, mode));
        const running = all.map(([prompt, mode]) => ours(engine as Engine, prompt, mode));
        expect(await Promise.all(running)).toEqual(alone);
      });
    });
  }
}
