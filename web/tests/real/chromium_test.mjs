// Compares tokens with `wf-run` in headless Chromium: every module, decode mode and kind of file.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, until, workers } from "../demo/page.mjs";
import { host } from "../demo/server.mjs";
import { MODES, PROMPTS, WILD, native } from "./native.mjs";

const root = fileURLToPath(new URL("../../dist", import.meta.url));
let browser, isolated, plain;

before(async () => {
  browser = await launch();
  [isolated, plain] = [await host({ isolated: true, root }), await host({ isolated: false, root })];
});

after(async () => {
  await browser?.close();
  await Promise.all([isolated?.close(), plain?.close()]);
});

/** Loads an engine in a new page. Returns its answers and its description. */
async function answers(url, options) {
  const page = await browser.newPage();
  try {
    // Any document of that origin works.
    await page.goto(`${url}index.js`);
    return await page.evaluate(
      async ([url, options, modes, prompts, wild]) => {
        const { load } = await import(`${url}index.js`);
        const engine = await load("default", { ...options, cache: false });
        const ask = async (prompt, decodeMode, sampling) => {
          const answer = { tokens: [], text: "" };
          const settings = { decodeMode, maxTokens: 80, ...sampling };
          for await (const part of engine.stream(prompt, settings)) {
            answer.tokens.push(...part.tokens.map((token) => token.id));
            answer.text += part.text;
          }
          return answer;
        };
        const greedy = { temperature: 0 };
        const all = modes.flatMap((mode) => prompts.map((prompt) => ask(prompt, mode, greedy)));
        all.push(ask(prompts[0], "ar", wild));
        const found = { info: engine.info(), all: await Promise.all(all) };
        await engine.dispose();
        return found;
      },
      [url, options, MODES, PROMPTS, WILD],
    );
  } finally {
    await page.close();
  }
}

for (const threads of [1, 2]) {
  for (const simd of ["simd128", "relaxed"]) {
    test(`${threads} thread(s), ${simd}: the native tokens in every mode`, async () => {
      const { url } = threads === 1 ? plain : isolated;
      const { info, all } = await answers(url, { threads, simd });
      assert.equal(info.threads, threads);
      assert.match(info.simd, new RegExp(simd));
      const want = MODES.flatMap((mode) => PROMPTS.map((prompt) => native(prompt, mode)));
      const wild = all.pop();
      assert.deepEqual(all, want);
      assert.equal(wild.tokens.length, 80);
      assert.match(wild.text, /\uFFFD.*\w/, "invalid UTF-8 does not break the stream");
    });
  }
}

/** Returns the files of a random golden model, with a tokenizer of single characters. */
function model(name, weights) {
  const source = fileURLToPath(new URL(`../../../tests/golden/models/${name}/`, import.meta.url));
  const config = readFileSync(`${source}config.json`);
  const letters = [..."abcdefghijklmnopqrstuvwxyz "];
  const { vocab_size } = JSON.parse(config);
  const token = (id) => [letters[id] ?? String.fromCodePoint(0x4e00 + id), id];
  const vocab = Object.fromEntries(Array.from({ length: vocab_size }, (_, id) => token(id)));
  const tokenizer = { added_tokens: [], model: { type: "BPE", vocab, merges: [] } };
  return {
    ...(weights.endsWith(".gguf") ? {} : { "config.json": config }),
    [weights]: readFileSync(source + weights),
    "tokenizer.json": Buffer.from(JSON.stringify(tokenizer)),
  };
}

for (const [kind, files] of Object.entries({
  "a Hugging Face directory": model("bitnet-packed", "model.safetensors"),
  "a GGUF file": model("qwen3-yarn", "f16.gguf"),
})) {
  test(`${kind} gives the native tokens`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "wrinklefree-"));
    const page = await browser.newPage();
    try {
      for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes);
      const more = ["--raw", "--repetition-penalty", "1.5", "--model", folder];
      const want = native("a small fox", "ar", more).tokens;
      assert.ok(new Set(want).size > 10, "the answer has many different tokens");
      await page.goto(`${plain.url}index.js`);
      const got = await page.evaluate(
        async ([url, files]) => {
          const { load } = await import(`${url}index.js`);
          const source = files.map(([name, bytes]) => new File([Uint8Array.from(bytes)], name));
          const engine = await load(source, { threads: 1 });
          const tokens = [];
          const options = { raw: true, temperature: 0, repetitionPenalty: 1.5, maxTokens: 80 };
          for await (const part of engine.stream("a small fox", { ...options, decodeMode: "ar" })) {
            tokens.push(...part.tokens.map((token) => token.id));
          }
          await engine.dispose();
          return tokens;
        },
        [plain.url, Object.entries(files).map(([name, bytes]) => [name, [...bytes]])],
      );
      assert.deepEqual(got, want);
    } finally {
      await page.close();
      rmSync(folder, { recursive: true });
    }
  });
}

test("disposed engines leave no thread", async () => {
  const page = await browser.newPage();
  await page.goto(`${isolated.url}index.js`);
  await page.evaluate(async (url) => {
    const { load } = await import(`${url}index.js`);
    for (let times = 0; times < 20; times++) {
      const engine = await load("default", { threads: 3, cache: false });
      await engine.dispose();
    }
  }, isolated.url);
  await until("no worker is left", async () => (await workers(browser)) === 0);
  await page.close();
});
