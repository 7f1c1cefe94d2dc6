// Compares tokens with `wf-run` in headless Chromium: every module, decode mode and kind of file.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, until, workers } from "../demo/page.mjs";
import { host } from "../demo/server.mjs";
import { drafter } from "./drafter.mjs";
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

/** Writes files to a folder and returns its path. */
function written(folder, files) {
  mkdirSync(folder, { recursive: true });
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes);
  return folder;
}

/** Tokens of an answer of the small Nemotron without a close decision: after them two words are as likely. */
const TOKENS = 28;

/** Files as a page can take them. */
const forPage = (files) => Object.entries(files).map(([name, bytes]) => [name, [...bytes]]);

test("a Nemotron, a drafter for it, a hole and snapshots give the native tokens", async () => {
  const source = fileURLToPath(new URL("../../../tests/golden/models/nemotron/", import.meta.url));
  const names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
  const files = Object.fromEntries(names.map((name) => [name, readFileSync(source + name)]));
  const drafts = drafter(JSON.parse(files["config.json"]), [0, 2]);
  const folder = mkdtempSync(join(tmpdir(), "wrinklefree-"));
  const page = await browser.newPage();
  try {
    const own = ["--model", written(join(folder, "model"), files), "--kv-dtype", "f32"];
    const drafting = ["--draft-model", written(join(folder, "draft"), drafts), "--row-cost", "0"];
    const [prompt, hole] = ["anna likes the red", ["--suffix", "t."]];
    const want = {
      ar: native(prompt, "ar", own, TOKENS),
      iterative: native(prompt, "iterative", own, TOKENS),
      verify: native(prompt, "verify", [...own, ...drafting], TOKENS),
      hole: native("ben sees the red c", "iterative", [...own, ...hole], 3),
    };
    assert.deepEqual(want.verify.tokens, want.ar.tokens);
    await page.goto(`${plain.url}index.js`);
    const got = await page.evaluate(
      async ([url, model, drafter, prompt, maxTokens]) => {
        const { load } = await import(`${url}index.js`);
        const file = ([name, bytes]) => new File([Uint8Array.from(bytes)], name);
        const options = { threads: 1, kvType: "f32" };
        const draftModel = drafter.map(file);
        const engine = await load(model.map(file), options);
        const drafting = await load(model.map(file), { ...options, draftModel });
        const ask = async (engine, prompt, more) => {
          const answer = { tokens: [], text: "" };
          const snapshots = [];
          let stats;
          const settings = { temperature: 0, maxTokens, raw: true, ...more };
          for await (const part of engine.stream(prompt, settings)) {
            answer.tokens.push(...part.tokens.map((token) => token.id));
            answer.text += part.text;
            if (part.snapshot) snapshots.push(part.snapshot.text);
            stats = part.stats;
          }
          return { answer, snapshots, stats };
        };
        const hole = { decodeMode: "iterative", suffix: "t.", maxTokens: 3, raw: false };
        const chat = { draft: "model", decodeMode: "verify", rowCost: 0 };
        const found = {
          ar: await ask(engine, prompt, { decodeMode: "ar" }),
          iterative: await ask(engine, prompt, { decodeMode: "iterative", diffusing: true }),
          verify: await ask(drafting, prompt, chat),
          hole: await ask(engine, "ben sees the red c", { ...hole, diffusing: true }),
          drafter: drafting.info().drafter,
          none: engine.info().drafter,
        };
        await Promise.all([engine.dispose(), drafting.dispose()]);
        return found;
      },
      [plain.url, forPage(files), forPage(drafts), prompt, TOKENS],
    );
    for (const name of Object.keys(want)) assert.deepEqual(got[name].answer, want[name], name);
    assert.match(got.drafter, /layout dflash/);
    assert.equal(got.none, null);
    const { draftedTokens, acceptedTokens } = got.verify.stats;
    assert.ok(
      draftedTokens > 50 && acceptedTokens <= draftedTokens,
      JSON.stringify(got.verify.stats),
    );
    assert.equal(got.iterative.stats.draftedTokens, 0);
    for (const name of ["iterative", "hole"]) {
      const { answer, snapshots } = got[name];
      assert.equal(snapshots.at(-1), answer.text);
      assert.ok(
        snapshots.some((text) => text.includes("\u2591")),
        snapshots.join("|"),
      );
      assert.ok(snapshots.every((text) => answer.text.startsWith(text.split("\u2591")[0])));
    }
    assert.deepEqual(got.ar.snapshots, []);
  } finally {
    await page.close();
    rmSync(folder, { recursive: true });
  }
});

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
