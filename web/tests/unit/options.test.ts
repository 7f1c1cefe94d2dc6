import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { ChatCompletionParams } from "../../src/chat_types.js";
import { chatRequest } from "../../src/chat_request.js";
import { WrinkleFreeError } from "../../src/errors.js";
import { similarName, withOptionNames } from "../../src/option_names.js";
import { GENERATE_OPTIONS, promptRequest } from "../../src/request.js";
import { modelName } from "../../src/sources.js";
import { load, rawLoad } from "./fake/load.js";

describe("an unknown option is refused with a suggestion", () => {
  test.each([
    [{ thread: 2 }, "load has no option thread: did you mean threads?"],
    [{ onprogress: () => {} }, "did you mean onProgress?"],
    [{ kv_type: "f32" }, "did you mean kvType?"],
    [{ n_ctx: 9 }, "did you mean context?"],
    [{ colour: "red" }, "load has no option colour: the options are threads, simd,"],
    [null, "load: expected an object of options, got null"],
    ["fast", "load: expected an object of options, got string"],
  ])("load(…, %j)", async (options, message) => {
    const loading = rawLoad("http://127.0.0.1:1/never-asked.gguf", options as never);
    const wanted = { code: "bad_request", message: expect.stringContaining(message) };
    await expect(loading).rejects.toMatchObject(wanted);
  });

  test.each([
    [{ max_tokens: 5 }, "generate has no option max_tokens: did you mean maxTokens?"],
    [{ max_new_tokens: 5 }, "did you mean maxTokens?"],
    [{ temprature: 0 }, "did you mean temperature?"],
    [{ topk: 4 }, "did you mean topK?"],
    [{ model: "m" }, "generate has no option model: the options are raw,"],
    [{ ["__proto__x"]: 1 }, "generate has no option __proto__x"],
  ])("generate(…, %j)", (options, message) => {
    expect(() => promptRequest("a", options as never)).toThrow(message);
  });

  test("chat, its call options, and tokenize", async () => {
    const messages = [{ role: "user", content: "a" }];
    const chat = (more: object) => chatRequest({ messages, ...more } as ChatCompletionParams);
    expect(() => chat({ maxTokens: 3 })).toThrow("did you mean max_tokens?");
    expect(() => chat({ functions: [] })).toThrow(/functions is not supported$/);
    expect(() => chat({ tool: [] })).toThrow("did you mean tools?");
    const list = "expected a list of at most 128 objects, got";
    expect(() => chat({ tools: "sun" })).toThrow(`tools: ${list} "sun"`);
    expect(() => chat({ documents: Array(129).fill({}) })).toThrow(`documents: ${list}`);
    expect(() => chat({ tool_choice: 1 })).toThrow("tool_choice: expected a string or an object");
    expect(() => chat({ response_format: { type: "json_object" } })).toThrow("json_object");
    expect(chat({ response_format: { type: "text" } })).not.toHaveProperty("response_format");
    const engine = await load();
    const late = engine.chat.completions.create({ messages }, { timeout: 5 } as never);
    await expect(late).rejects.toThrow("create has no option timeout");
    await expect(engine.tokenize("a", { specials: true } as never)).rejects.toThrow("special?");
  });

  test("one that is undefined counts as missing", () => {
    const options = { max_tokens: undefined, maxTokens: undefined, seed: 1 };
    expect(promptRequest("a", options as never)).toEqual({ prompt: "a", seed: 1 });
  });
});

test("the table of defaults says which options there are, and that a seed is drawn", () => {
  const page = readFileSync(new URL("../../../docs/command-line.md", import.meta.url), "utf8");
  const [, section = ""] = page.split("\n## Defaults\n");
  const lines = section.split("\n## ")[0]?.split("\n") ?? [];
  const rows = lines.filter((line) => line.startsWith("| `")).map((line) => line.split(" | "));
  expect(rows.length).toBeGreaterThan(20);
  for (const [option = "", , , , npm] of rows) {
    const snake = option.replaceAll(/[| `]/g, "");
    const camel = snake.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
    expect([camel, GENERATE_OPTIONS.includes(camel)]).toEqual([camel, npm !== "–"]);
  }
  const seeds = Array.from({ length: 3 }, () => promptRequest("a", {}).seed);
  expect(new Set(seeds).size).toBeGreaterThan(1);
  expect(rows.find(([option]) => option === "| `seed`")?.[4]).toBe("drawn");
});

describe("a value of the wrong kind is refused by name, in plain words", () => {
  test.each([
    [{ maxTokens: "many" }, 'maxTokens: expected an integer of at least 0, got "many"'],
    [{ maxTokens: 1.5 }, "maxTokens: expected an integer of at least 0, got 1.5"],
    [{ seed: -1 }, "seed: expected an integer of at least 0, got -1"],
    [{ temperature: null }, "temperature: expected a finite number, got null"],
    [{ raw: 1 }, "raw: expected true or false, got 1"],
    [{ stop: [1] }, "stop: expected a string or a list of strings, got 1"],
    [{ decodeMode: 3 }, "decodeMode: expected a string, got 3"],
    [{ chatTemplateKwargs: [] }, "chatTemplateKwargs: expected an object, got "],
    [{ logitBias: { x: 1 } }, "logitBias: a token id: expected an integer"],
    [{ logitBias: { 1: "a" } }, 'logitBias[1]: expected a finite number, got "a"'],
    [{ logitBias: 5 }, "logitBias: expected an object, got 5"],
  ])("generate(…, %j)", (options, message) => {
    const refused = expect.objectContaining({ code: "bad_request" });
    expect(() => promptRequest("a", options as never)).toThrow(message);
    expect(() => promptRequest("a", options as never)).toThrow(refused);
  });

  test("in a chat", () => {
    const messages = [{ role: "user", content: "a" }];
    const chat = (more: object) => () => chatRequest({ messages, ...more } as never);
    expect(chat({ max_tokens: "9" })).toThrow("max_tokens: expected an integer");
    expect(chat({ stop: 5 })).toThrow("stop: expected a string or a list of strings, got 5");
    expect(chat({ top_p: "x" })).toThrow("top_p: expected a finite number");
    expect(chat({ logit_bias: { 1: NaN } })).toThrow("logit_bias[1]: expected a finite number");
  });

  test("options that are functions", async () => {
    const wrong = { onProgress: "no" } as never;
    await expect(load(undefined, wrong)).rejects.toThrow("onProgress: expected a function");
    const signal = { signal: {} } as never;
    await expect(load(undefined, signal)).rejects.toThrow("signal: expected an AbortSignal");
  });
});

test("prompts are texts, messages or token ids", () => {
  const seed = { seed: 1 };
  expect(promptRequest([7, 0], seed)).toEqual({ tokens: [7, 0], ...seed });
  expect(promptRequest(Uint32Array.of(5), seed)).toEqual({ tokens: [5], ...seed });
  expect(promptRequest("a", { stop: "x", ...seed })).toEqual({ prompt: "a", stop: ["x"], ...seed });
  expect(() => promptRequest([1, -2], seed)).toThrow("prompt[1]: expected a token id, got -2");
  expect(() => promptRequest([], seed)).toThrow("messages: expected a list");
  expect(() => promptRequest(5 as never, seed)).toThrow("prompt: expected a text, messages or");
});

test("names of other libraries lead to this package's", () => {
  expect(similarName("stopSequences", GENERATE_OPTIONS)).toBe("stop");
  expect(similarName("num_predict", GENERATE_OPTIONS)).toBe("maxTokens");
  expect(similarName("x".repeat(1e6), GENERATE_OPTIONS)).toBeUndefined();
});

test("the core's messages have this package's names", () => {
  const renamed = (text: string) =>
    withOptionNames(new WrinkleFreeError("x", text), GENERATE_OPTIONS) as Error;
  expect(renamed("max_tokens is 0: ask for more").message).toBe("maxTokens is 0: ask for more");
  expect(renamed('`decode_mode`: expected one of auto, ar, not "x"').message).toBe(
    'decodeMode: expected one of auto, ar, not "x"',
  );
  expect(renamed("small_block_size 3 does not divide block_size 8").message).toBe(
    "smallBlockSize 3 does not divide blockSize 8",
  );
});

test("a model has the name of its file or of its directory", () => {
  const file = (name: string, folder?: string) => ({ name, folder, segments: [] });
  const named = (...files: ReturnType<typeof file>[]) => modelName(files);
  expect(named(file("a.wf.safetensors", "x"))).toBe("a");
  expect(named(file("a-00001-of-00002.gguf"), file("a-00002-of-00002.gguf"))).toBe("a");
  expect(named(file("config.json", "bitnet"), file("model.safetensors", "bitnet"))).toBe("bitnet");
  expect(named(file("config.json"), file("tokenizer.json"), file("m.safetensors"))).toBe("m");
  expect(named(file("config.json"))).toBe("config.json");
  expect(named(file(".gguf"))).toBe("model");
});

test("a model without a chat template says so", async () => {
  const { notes } = (await load(new File(["a model"], "plain.gguf"))).info();
  expect(notes).toEqual([expect.stringContaining("plain has no chat template: ")]);
  const chat = (await load(new File(["chat model"], "c.gguf"))).info();
  expect(chat.notes).toEqual([]);
});
