import { describe, expect, test } from "vitest";
import type { GenerateOptions, LoadOptions, Part, Progress } from "../../src/types.js";
import { load, rawLoad } from "./fake/load.js";

describe("loading", () => {
  test("describes the engine, with reasons", async () => {
    const reports: Progress[] = [];
    const engine = await load(new File(["a model"], "m.gguf"), {
      context: 64,
      onProgress: (progress) => reports.push(progress),
    });
    expect(engine.info()).toMatchObject({
      ...{ name: "m", architecture: "fake", context: 64, weightsBytes: 7, threads: 1 },
      subnormalWeights: 0,
      artifact: expect.stringMatching(/^single-/),
      why: { threads: "requested", cache: "off: neither OPFS nor Cache Storage is available" },
      files: [{ name: "m.gguf", bytes: 7, cached: false, sha256: null }],
    });
    expect(reports.at(-1)).toEqual({ loaded: 7, total: 7, file: "m.gguf", cached: false });
  });

  test("keeps the former name of the artifact field", async () => {
    const info = (await load()).info();
    expect(info.artefact).toBe(info.artifact);
  });

  test("passes on the options of the key-value cache", async () => {
    const kinds = [
      [{}, "f32", "f32", "dense"],
      [{ kvType: "int8" }, "int8", "int8", "dense"],
      [{ kvType: { values: "bf16" }, attention: "topk:64" }, "f32", "bf16", "topk:64"],
    ] as const;
    for (const [options, keys, values, attention] of kinds) {
      const engine = await load(new Blob(["x"]), options);
      expect(engine.info()).toMatchObject({ kvTypes: { keys, values }, attention });
    }
  });

  test("loads a block for multi-token prediction if asked to", async () => {
    for (const [mtp, defaultDecodeMode] of [
      [true, "verify"],
      [false, "ar"],
    ] as const) {
      expect((await load(new Blob(["x"]), { mtp })).info()).toMatchObject({ defaultDecodeMode });
    }
  });

  test("loads a drafter next to the model", async () => {
    const draftModel = [new File(["d"], "config.json"), new File(["e"], "d.safetensors")];
    const engine = await load(new File(["x"], "m.gguf"), { draftModel, draftLayout: "dspark" });
    const { name, drafter, files, weightsBytes } = engine.info();
    expect([name, drafter, weightsBytes]).toEqual(["m", "config.json,d.safetensors", 1]);
    expect(files.map((file) => file.name)).toEqual(["m.gguf", "config.json", "d.safetensors"]);
    expect((await load(new Blob(["x"]))).info().drafter).toBe(null);
    for (const [options, message] of [
      [{ draftLayout: "dflash" }, /draftLayout: expected draftModel next to it/],
      [{ draftModel: new Blob(["d"]), draftLayout: "x" }, /draftLayout: expected one of/],
      [{ draftModel: [] }, /the list of files is empty/],
    ] as const) {
      await expect(load(new Blob(["x"]), options as LoadOptions)).rejects.toThrow(message);
    }
  });

  test("snapshots are for streams", async () => {
    const engine = await load();
    const options = { diffusing: true } as GenerateOptions;
    await expect(engine.generate("a", options)).rejects.toThrow(/only `stream` has snapshots/);
    const chat = { messages: [{ role: "user" as const, content: "a" }], diffusing: true };
    await expect(engine.chat.completions.create(chat)).rejects.toThrow(/set stream/);
  });

  test("takes paths, URLs and buffers", async () => {
    const here = import.meta.url;
    for (const source of [new URL(here), here, new URL(here).pathname]) {
      expect((await load(source)).info().files[0]?.name).toBe("engine.test.ts");
    }
    const buffer = new TextEncoder().encode("a model").buffer;
    expect((await load(buffer)).info().weightsBytes).toBe(7);
    expect(buffer.byteLength).toBe(7);
    await expect(load("./not-there.gguf")).rejects.toMatchObject({ code: "bad_source" });
  });

  test("starts and ends pool workers", async () => {
    const engine = await load(new Blob(["x"]), { threads: 3 });
    expect(engine.info()).toMatchObject({
      threads: 3,
      artifact: expect.stringMatching(/^threads-/),
    });
    expect(await engine.generate("a b")).toBe("a b .");
    await engine.dispose();
  });

  test("passes on the core's errors", async () => {
    const refused = load(new File(["no model"], "x.gguf"));
    await expect(refused).rejects.toMatchObject({ code: "not_a_model", name: "WrinkleFreeError" });
  });

  test("checks hashes", async () => {
    const wrong = load(new Blob(["x"]), { sha256: "0".repeat(64) });
    await expect(wrong).rejects.toMatchObject({ code: "hash_mismatch" });
  });

  test("refuses invalid options before anything is fetched", async () => {
    const hash = "0".repeat(64);
    const wrong: [LoadOptions, string][] = [
      [{ threads: 0 }, "threads"],
      [{ threads: 1e10 }, "threads"],
      [{ context: -1 }, "context"],
      [{ context: NaN }, "context"],
      [{ simd: "scalar" as never }, "simd"],
      [{ kvType: "f64" as never }, "kvType"],
      [{ kvType: { key: "f32" } as never }, "kvType"],
      [{ mtp: "yes" as never }, "mtp"],
      [{ name: 5 as never }, "name"],
      [{ sha256: "00" }, "sha256"],
      [{ sha256: 5 as never }, "sha256"],
      [{ sha256: { "another.gguf": hash } }, "sha256"],
    ];
    for (const [options, name] of wrong) {
      const loading = load("http://127.0.0.1:1/never-asked.gguf", options);
      const message = expect.stringContaining(`${name}: `);
      await expect(loading, name).rejects.toMatchObject({ code: "bad_request", message });
    }
    const two = load([new File(["x"], "a.gguf"), new File(["y"], "b.gguf")], { sha256: hash });
    await expect(two).rejects.toMatchObject({ code: "bad_request" });
  });

  test("ends after an error of the listener", async () => {
    const onProgress = () => {
      throw new Error("my own");
    };
    const message = expect.stringContaining("my own");
    await expect(load(undefined, { onProgress })).rejects.toMatchObject({ message });
  });

  test("refuses a buffer that is detached during loading", async () => {
    const buffer = new ArrayBuffer(1000);
    const loading = load(buffer);
    structuredClone(buffer, { transfer: [buffer] });
    await expect(loading).rejects.toMatchObject({ code: "bad_source" });
    await expect(load([new ArrayBuffer(9), null as never])).rejects.toMatchObject({
      code: "bad_source",
    });
  });

  test("ends with the signal's reason", async () => {
    await expect(rawLoad("default", { signal: AbortSignal.abort("no") })).rejects.toBe("no");
    const abort = new AbortController();
    const loading = rawLoad("default", { signal: abort.signal });
    abort.abort("enough");
    await expect(loading).rejects.toBe("enough");
  });
});

describe("generating", () => {
  test("returns the text", async () => {
    const engine = await load();
    expect(await engine.generate("to be or not")).toBe("to be or not .");
    expect(await engine.generate("to be", { maxTokens: 3 })).toBe("to be to .");
  });

  test("yields parts with statistics", async () => {
    const engine = await load();
    const parts: Part[] = [];
    for await (const part of engine.stream("slow and steady", { logprobs: 1 })) parts.push(part);
    expect(parts.map((part) => part.text).join("")).toBe("slow and steady .");
    expect(parts[0]?.provisional).toEqual([{ state: "masked", text: "" }]);
    expect(parts[0]?.tokens).toEqual([
      { id: 1, text: "<1>", logprob: -1, top: [{ id: 7, text: "<7>", logprob: -1 }] },
    ]);
    const { stats, finishReason } = parts.at(-1) as Part;
    expect(finishReason).toBe("stop");
    expect(stats).toMatchObject({ tokens: 3, promptTokens: 3, cachedTokens: 1, passes: 3 });
    expect(stats.tokensPerPass).toBe(1);
    // The first word takes 20 ms.
    expect(stats.timeToFirstToken).toBeGreaterThan(15);
    expect(stats.prefillTokensPerSecond).toBeLessThan(2 / 0.015);
    expect(stats.tokensPerSecond).toBeGreaterThan(0);
  });

  test("continues a conversation", async () => {
    const engine = await load();
    const contents = ["to be", "or not", "to be"];
    const messages = contents.map((content, index) => ({
      role: index % 2 ? "assistant" : "user",
      content,
    }));
    let text = "";
    for await (const part of engine.stream(messages)) text += part.text;
    expect(text).toBe("to be or not to be .");
  });

  test("runs several requests at once", async () => {
    const engine = await load();
    const prompts = ["slow a b c d", "slow e f", "slow g"];
    const began = performance.now();
    const texts = await Promise.all(prompts.map((prompt) => engine.generate(prompt)));
    expect(texts).toEqual(prompts.map((prompt) => `${prompt} .`));
    expect(performance.now() - began).toBeLessThan(1000);
  });

  test("cancels within one pass, and other requests continue", async () => {
    const engine = await load();
    const abort = new AbortController();
    const endless = engine.generate("slow", { maxTokens: 1e6, signal: abort.signal });
    const other = engine.generate("slow slow slow slow");
    setTimeout(() => abort.abort("enough"), 50);
    await expect(endless).rejects.toBe("enough");
    expect(await other).toBe("slow slow slow slow .");
    const began = performance.now();
    await engine.generate("next");
    expect(performance.now() - began).toBeLessThan(500);
    await expect(engine.generate("a", { signal: abort.signal })).rejects.toBe("enough");
  });

  test("cancels even if no more parts are read", async () => {
    const engine = await load();
    const abort = new AbortController();
    const options = { maxTokens: 1e6, signal: abort.signal };
    const endless = engine.stream("slow", options);
    await endless.next();
    abort.abort("enough");
    // If the request still ran, each pass would take 20 ms.
    const began = performance.now();
    expect(await engine.generate("a b c d e f g h")).toBe("a b c d e f g h .");
    expect(performance.now() - began).toBeLessThan(150);
    await expect(endless.next()).rejects.toBe("enough");
  });

  test("cancels when the loop is left", async () => {
    const engine = await load();
    for await (const part of engine.stream("slow", { maxTokens: 1e6 })) {
      if (part.stats.tokens > 2) break;
    }
    expect(await engine.generate("next")).toBe("next .");
  });

  test("refuses invalid parameters and continues", async () => {
    const engine = await load();
    const refused = engine.generate("a", { temperature: -1 });
    await expect(refused).rejects.toMatchObject({ code: "bad_decoding_parameter" });
    const wrong = [
      () => engine.generate("a", { maxTokens: Infinity }),
      () => engine.generate("a", { temperature: NaN }),
      () => engine.generate((() => 1) as never),
      () => engine.tokenize(5 as never),
      () => engine.tokenize((() => 1) as never),
    ];
    for (const ask of wrong) await expect(ask()).rejects.toMatchObject({ code: "bad_request" });
    expect(await engine.generate("a")).toBe("a .");
  });

  test("fails a request that the model cannot compute, and others continue", async () => {
    const engine = await load();
    const other = engine.generate("a b c d e f");
    await expect(engine.generate("a overflow")).rejects.toMatchObject({ code: "model_error" });
    expect(await other).toBe("a b c d e f .");
    expect(await engine.generate("a b")).toBe("a b .");
  });

  test("tokenizes", async () => {
    const engine = await load();
    expect(await engine.tokenize("ab")).toEqual([97, 98]);
    expect(await engine.tokenize("ab", { special: true })).toEqual([97, 98, 0]);
  });
});

describe("the end", () => {
  test("all calls reject after a pool worker's trap", async () => {
    const engine = await load(new Blob(["x"]), { threads: 2 });
    const trapped = engine.generate("a pool-trap");
    await expect(trapped).rejects.toMatchObject({ code: "crashed", message: "unreachable" });
    await expect(engine.generate("a")).rejects.toMatchObject({ code: "crashed" });
  });

  test("all calls reject after a trap", async () => {
    const engine = await load();
    const other = engine.generate("slow", { maxTokens: 1e6 });
    const trapped = engine.generate("slow trap");
    for (const broken of [trapped, other, trapped.catch(() => engine.generate("a"))]) {
      await expect(broken).rejects.toMatchObject({ code: "crashed", message: "unreachable" });
    }
  });

  test("all calls reject after dispose", async () => {
    const engine = await load();
    const running = engine.generate("slow", { maxTokens: 1e6 });
    const rejected = expect(running).rejects.toMatchObject({ code: "disposed" });
    await engine.dispose();
    await rejected;
    await expect(engine.generate("a")).rejects.toMatchObject({ code: "disposed" });
    await engine.dispose();
  });
});
