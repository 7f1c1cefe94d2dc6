// The package in Chromium, Firefox and WebKit, with the real modules and the model in the package.
// `ALL=1` compares every module and ten prompts; else two prompts and the best module.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { host } from "../demo/server.mjs";
import { MODES, PROMPTS, native } from "../real/native.mjs";
import { ENGINES, launchEngine } from "./engines.mjs";

const all = Boolean(process.env.ALL);
const root = fileURLToPath(new URL("../../dist", import.meta.url));
const MORE = [
  "Tell me a story about a girl.",
  "What is the opposite of happy?",
  "Count from 6 to 13.",
  "Spell the word drum.",
  "Tell me a story about a brave mouse.",
  "What is the opposite of big?",
  "Count from 2 to 9.",
  "Spell the word cat.",
];
const prompts = all ? [...PROMPTS, ...MORE] : PROMPTS;
const best = { threads: 2, simd: "auto" };
const configurations = all
  ? [1, 2].flatMap((threads) => ["simd128", "auto"].map((simd) => ({ threads, simd })))
  : [best];

for (const name of ENGINES) {
  describe(name, () => {
    let engine, server;

    before(async () => {
      server = await host({ isolated: true, root });
      engine = await launchEngine(name);
      await engine.goto(`${server.url}blank.html`);
    });

    after(async () => {
      await engine?.close();
      await server?.close();
    });

    for (const options of configurations) {
      test(`${JSON.stringify(options)}: the native tokens in every mode, with reasons`, async () => {
        const { info, answers } = await engine.evaluate(
          tokens,
          server.url,
          options,
          MODES,
          prompts,
        );
        const want = MODES.flatMap((mode) => prompts.map((prompt) => native(prompt, mode).tokens));
        assert.deepEqual(answers, want);
        assert.equal(info.threads, options.threads);
        assert.equal(info.why.threads, "requested");
        assert.match(info.why.simd, /passed the self-test|not available|miscomputes|requested/);
      });
    }

    test("a file of the user, an abort, and the end", async () => {
      const found = await engine.evaluate(held, server.url);
      assert.deepEqual(found.same, [true, true]);
      assert.equal(found.aborted, "enough");
      assert.ok(found.abortedAfter < 2000, `${found.abortedAfter} ms`);
      assert.equal(found.disposed, "disposed");
    });

    test("a download is kept, loads without its server, and is deleted", async () => {
      const models = await host({ isolated: true, root, cors: true });
      const url = `${models.url}default.wf.safetensors`;
      const first = await engine.evaluate(download, server.url, url);
      assert.equal(first.cached, false);
      // What an engine lacks is said, and then another store is used.
      assert.match(first.why, /^(opfs|cache-storage: OPFS .+)$/);
      const [kept] = first.list;
      assert.deepEqual([kept.urls, kept.complete, first.list.length], [[url], true, 1]);
      assert.equal(kept.bytes, (await readFile(`${root}/default.wf.safetensors`)).length);
      await models.close();
      // Driven WebKit is a private window: what its Cache Storage keeps ends with the engine's worker.
      if (first.why !== "opfs") return assert.equal(name, "webkit");
      const second = await engine.evaluate(download, server.url, url);
      assert.deepEqual([second.cached, second.answer], [true, first.answer]);
      assert.equal(await engine.evaluate(forget, server.url, url), 1);
      assert.deepEqual(await engine.evaluate(forget, server.url, url), 0);
    });

    test("a prompt far over the context is refused at once", async () => {
      const { code, message, took } = await engine.evaluate(tooLong, server.url);
      assert.equal(code, "context_length_exceeded");
      assert.match(message, /^the prompt has at least \d+ tokens, but the context holds 512/);
      assert.ok(took < 3000, `${took} ms`);
    });

    test("tokens and holes", async () => {
      const { count, text, raw, ids, hole } = await engine.evaluate(tokensAndHoles, server.url);
      assert.ok(count > 4 && count < 40, count);
      assert.equal(text, "a small fox");
      assert.equal(ids, raw);
      // As `wf-run serve` fills it.
      assert.equal(hole, " girl boy named Max");
    });

    test("a server without CORS, and one that is not there, are told apart from others", async () => {
      const closed = createServer((_, response) => response.end("x"));
      await new Promise((resolve) => closed.listen(0, "127.0.0.1", resolve));
      const url = `http://127.0.0.1:${closed.address().port}/m.gguf`;
      const began = performance.now();
      const { code, message } = await engine.evaluate(refused, server.url, url);
      closed.close();
      assert.equal(code, "download_failed");
      assert.match(message, /Access-Control-Allow-Origin \(CORS\)/);
      const scheme = await engine.evaluate(refused, server.url, "gopher://example.org/m.gguf");
      assert.match(scheme.message, /gopher: URLs cannot be downloaded here: use https:/);
      assert.ok(performance.now() - began < 6000, "after one try each");
    });
  });
}

// Functions that run in the page.

async function tokens(base, options, modes, prompts) {
  const { load } = await import(`${base}index.js`);
  const engine = await load("default", { ...options, cache: false });
  const ask = async (prompt, decodeMode) => {
    const ids = [];
    const settings = { decodeMode, maxTokens: 80, temperature: 0 };
    for await (const part of engine.stream(prompt, settings)) {
      ids.push(...part.tokens.map((token) => token.id));
    }
    return ids;
  };
  const answers = modes.flatMap((mode) => prompts.map((prompt) => ask(prompt, mode)));
  const found = { info: engine.info(), answers: await Promise.all(answers) };
  await engine.dispose();
  return found;
}

async function held(base) {
  const { load } = await import(`${base}index.js`);
  const bytes = await (await fetch(`${base}default.wf.safetensors`)).arrayBuffer();
  const prompt = "Tell me a story about a boy.";
  const settings = { temperature: 0, maxTokens: 20, seed: 1 };
  const built = await load("default", { threads: 1, cache: false });
  const want = await built.generate(prompt, settings);
  await built.dispose();
  const same = [];
  for (const source of [new File([bytes], "mine.wf.safetensors"), bytes]) {
    const engine = await load(source, { threads: 2 });
    same.push((await engine.generate(prompt, settings)) === want);
    await engine.dispose();
  }
  const engine = await load("default", { threads: 2, cache: false });
  const abort = new AbortController();
  let at = 0;
  const options = { temperature: 3, seed: 5, raw: true, signal: abort.signal };
  const aborted = await (async () => {
    for await (const _ of engine.stream("Once", options)) {
      at ||= performance.now();
      abort.abort("enough");
    }
  })().catch((reason) => reason);
  const abortedAfter = performance.now() - at;
  await engine.dispose();
  const { code: disposed } = await engine.generate("a").catch((error) => error);
  return { same, aborted, abortedAfter, disposed };
}

async function download(base, url) {
  const { load, cache } = await import(`${base}index.js`);
  const engine = await load(url, { threads: 1 });
  const { files, why } = engine.info();
  const answer = await engine.generate("What is the opposite of hot?", { temperature: 0 });
  const list = await cache.list();
  await engine.dispose();
  return { cached: files[0].cached, why: why.cache, answer, list };
}

async function forget(base, url) {
  const { cache } = await import(`${base}index.js`);
  return cache.delete(url);
}

async function tooLong(base) {
  const { load } = await import(`${base}index.js`);
  const engine = await load("default", { threads: 1, cache: false });
  const prompt = "a small fox ".repeat(1e6);
  const began = performance.now();
  const { code, message } = await engine.generate(prompt).catch((error) => error);
  const took = performance.now() - began;
  await engine.dispose();
  return { code, message, took };
}

async function tokensAndHoles(base) {
  const { load } = await import(`${base}index.js`);
  const engine = await load("default", { threads: 1, cache: false });
  const greedy = { temperature: 0, maxTokens: 20, decodeMode: "ar" };
  const prompt = "Once upon a time";
  const special = await engine.tokenize(prompt, { special: true });
  const hole = { temperature: 0, maxTokens: 4, suffix: " fox. He was very small." };
  const found = {
    count: await engine.countTokens([{ role: "user", content: "a small fox" }]),
    text: await engine.detokenize(await engine.tokenize("a small fox")),
    raw: await engine.generate(prompt, { ...greedy, raw: true }),
    ids: await engine.generate(special, greedy),
    hole: await engine.generate("Once there was a", hole),
  };
  await engine.dispose();
  return found;
}

async function refused(base, url) {
  const { load } = await import(`${base}index.js`);
  const { code, message } = await load(url, { threads: 1 }).catch((error) => error);
  return { code, message };
}
