/** Turns of a file with the keys of the official BitNet GGUF end. Needs `web/build`. */

import { expect, test } from "vitest";
import { type LoadOptions, load } from "../../dist/index.node.js";
import { bitnetGguf } from "./bitnet_gguf.mjs";

const file = bitnetGguf();

async function answer(options: LoadOptions, raw = false) {
  const engine = await load(file, { threads: 1, simd: "simd128", name: "bitnet", ...options });
  try {
    let text = "";
    let finishReason = null;
    for await (const part of engine.stream("Good morning", {
      maxTokens: 12,
      temperature: 0,
      raw,
    })) {
      text += part.text;
      finishReason = part.finishReason;
    }
    return { text, finishReason, info: engine.info() };
  } finally {
    engine.dispose();
  }
}

test("the end of a turn is known by its name", async () => {
  const { text, finishReason, info } = await answer({});
  expect([text, finishReason]).toEqual(["Hi", "stop"]);
  expect(info.endTokens).toEqual([
    { id: 128_001, token: "<|end_of_text|>", reason: "stated" },
    { id: 128_009, token: "<|eot_id|>", reason: "named" },
  ]);
  expect(info.notes.join()).toMatch(/`bitnet` replaces it/);
  expect(info.notes.join()).toMatch(/tokenizer.ggml.pre is missing/);
});

test("tokens and templates that the page asks for", async () => {
  const options = { stopTokens: ["Hi"], chatTemplate: "chatml", templateFixes: false };
  const { text, finishReason, info } = await answer(options);
  expect([text, finishReason]).toEqual(["", "stop"]);
  expect(info.endTokens[1]).toEqual({ id: 256, token: "Hi", reason: "asked" });
  expect(info.notes.join()).not.toMatch(/replaces/);
  expect((await answer({}, true)).text).toBe("Hi");
  const wrong = load(file, { threads: 1, stopTokens: ["<|nothing|>"] });
  await expect(wrong).rejects.toMatchObject({ message: expect.stringMatching(/<\|nothing\|>/) });
  const notStrings = load(file, { stopTokens: [1] as unknown as string[] });
  await expect(notStrings).rejects.toMatchObject({ code: "bad_request" });
});
