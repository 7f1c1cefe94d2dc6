import { describe, expect, test } from "vitest";
import type {
  ChatCompletionChunk,
  ChatCompletionParams,
  ChatTool,
  ChatToolCall,
} from "../../src/chat_types.js";
import { chatRequest } from "../../src/chat_request.js";
import { promptRequest } from "../../src/request.js";
import { load } from "./fake/load.js";

const messages = [{ role: "user", content: "to be or not" }];

test("a complete answer", async () => {
  const engine = await load(new File(["m"], "m.gguf"));
  const answer = await engine.chat.completions.create({ messages, max_tokens: 2 });
  expect(answer).toEqual({
    id: expect.stringMatching(/^chatcmpl-/),
    object: "chat.completion",
    created: expect.closeTo(Date.now() / 1000, -1),
    model: "m",
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: "to be .", refusal: null },
        logprobs: null,
        finish_reason: "length",
      },
    ],
    timings: expect.objectContaining({ forward_passes: 2, tokens_per_pass: 1, cached_tokens: 1 }),
    usage: {
      ...{ prompt_tokens: 4, completion_tokens: 2, total_tokens: 6 },
      prompt_tokens_details: { cached_tokens: 1 },
    },
  });
});

test("a streamed answer with usage", async () => {
  const engine = await load();
  const chunks: ChatCompletionChunk[] = [];
  const stream_options = { include_usage: true };
  const params = { messages, stream: true, stream_options } as const;
  for await (const chunk of await engine.chat.completions.create(params)) chunks.push(chunk);
  const deltas = chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta));
  expect(deltas[0]).toEqual({ role: "assistant", content: "" });
  expect(deltas.map((delta) => delta.content ?? "").join("")).toBe("to be or not .");
  expect(chunks.at(-2)?.choices[0]).toMatchObject({ delta: {}, finish_reason: "stop" });
  expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 8 } });
  expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1);
});

test("reasoning is apart from the answer", async () => {
  const engine = await load();
  const thinking = [{ role: "user", content: "think:6 think:times 42" }];
  const answer = await engine.chat.completions.create({ messages: thinking });
  const want = { role: "assistant", content: "42 .", reasoning_content: "6 times ", refusal: null };
  expect(answer.choices[0].message).toEqual(want);
  const deltas: ChatCompletionChunk["choices"][number]["delta"][] = [];
  const params = { messages: thinking, stream: true } as const;
  for await (const { choices } of await engine.chat.completions.create(params)) {
    deltas.push(...choices.map(({ delta }) => delta));
  }
  const text = (field: "content" | "reasoning_content") =>
    deltas.map((delta) => delta[field] ?? "").join("");
  expect([text("reasoning_content"), text("content")]).toEqual(["6 times ", "42 ."]);
  expect(await engine.generate("think:6 42")).toBe("42 .");
  let thought = "";
  for await (const part of engine.stream("think:6 42")) thought += part.reasoning;
  expect(thought).toBe("6 ");
});

describe("calls of tools", () => {
  const content = 'I call:sun with:{"city": with:"Oslo"} call:moon with:{}';
  const asked = [{ role: "user", content }];
  const call = (name: string, text: string) => ({
    id: expect.stringMatching(/^call_\w{9,}$/),
    type: "function",
    function: { name, arguments: text },
  });

  test("in a complete answer", async () => {
    const engine = await load();
    const answer = await engine.chat.completions.create({ messages: asked });
    const calls = [call("sun", '{"city":"Oslo"}'), call("moon", "{}")];
    const message = { role: "assistant", content: "I ", tool_calls: calls, refusal: null };
    const choice = { index: 0, logprobs: null, message, finish_reason: "tool_calls" };
    expect(answer.choices).toEqual([choice]);
    const ids = answer.choices[0].message.tool_calls?.map(({ id }) => id);
    expect(new Set(ids).size).toBe(2);
    const alone = [{ role: "user", content: "call:moon with:{}" }];
    const { choices } = await engine.chat.completions.create({ messages: alone });
    expect(choices[0].message.content).toBeNull();
    const cut = await engine.chat.completions.create({ messages: alone, max_tokens: 1 });
    expect(cut.choices[0]).toMatchObject({ finish_reason: "length" });
    expect(cut.choices[0].message.tool_calls).toEqual([call("moon", "")]);
  });

  test("in a stream", async () => {
    const engine = await load();
    const params = { messages: asked, stream: true } as const;
    const calls: ChatToolCall[] = [];
    const reasons = [];
    for await (const { choices } of await engine.chat.completions.create(params)) {
      const [{ delta, finish_reason }] = choices as [ChatCompletionChunk["choices"][number]];
      if (delta.tool_calls) expect(delta).not.toHaveProperty("content", "");
      for (const { index, function: called, ...begin } of delta.tool_calls ?? []) {
        if (begin.id) calls[index] = { ...begin, function: { ...called } } as ChatToolCall;
        else calls[index]!.function.arguments += called.arguments;
        expect(Object.keys(begin)).toEqual(begin.id ? ["id", "type"] : []);
      }
      if (finish_reason) reasons.push(finish_reason);
    }
    expect(calls).toEqual([call("sun", '{"city":"Oslo"}'), call("moon", "{}")]);
    expect(reasons).toEqual(["tool_calls"]);
  });

  test("in the parts of a stream, and not in a text", async () => {
    const engine = await load();
    const texts: Record<string, string> = {};
    for await (const part of engine.stream(content)) {
      for (const { index, name, arguments: more } of part.toolCalls) {
        texts[index] = (texts[index] ?? `${name} `) + more;
      }
    }
    expect(texts).toEqual({ 0: 'sun {"city":"Oslo"}', 1: "moon {}" });
    expect(await engine.generate(content)).toBe("I ");
  });

  test("in earlier messages", () => {
    const called = { name: "sun", arguments: "{}" };
    const request = chatRequest({
      messages: [
        { role: "assistant", content: null, tool_calls: [{ id: "call_1", function: called }] },
        { role: "tool", tool_call_id: "call_1", name: null, content: "Rain." },
        { role: "assistant", function_call: called },
        { role: "function", name: "sun", content: "Snow." },
        { role: "assistant", content: "So.", tool_calls: [] },
      ],
    });
    const call = { id: "call_1", type: "function", function: called };
    expect(request.messages).toEqual([
      { role: "assistant", content: "", tool_calls: [call] },
      { role: "tool", tool_call_id: "call_1", content: "Rain." },
      { role: "assistant", content: "", tool_calls: [{ ...call, id: null }] },
      { role: "tool", name: "sun", content: "Snow." },
      { role: "assistant", content: "So." },
    ]);
  });
});

test("log-probabilities", async () => {
  const engine = await load();
  const params = { messages, logprobs: true, top_logprobs: 1, max_tokens: 1 };
  const { choices } = await engine.chat.completions.create(params);
  expect(choices[0].logprobs?.content).toEqual([
    {
      ...{ token: "<1>", logprob: -1, bytes: [60, 49, 62] },
      top_logprobs: [{ token: "<7>", logprob: -1, bytes: [60, 55, 62] }],
    },
  ]);
});

test("an abort", async () => {
  const engine = await load();
  const slow = [{ role: "user", content: "slow" }];
  const params = { messages: slow, max_tokens: 1e6, stream: true } as const;
  const abort = new AbortController();
  const stream = await engine.chat.completions.create(params, { signal: abort.signal });
  const all = (async () => {
    for await (const _ of stream) abort.abort("enough");
  })();
  await expect(all).rejects.toBe("enough");
});

test("parameters are converted to the core's names", () => {
  const tools: ChatTool[] = [{ type: "function", function: { name: "sun" } }];
  const params: ChatCompletionParams = {
    ...{ messages, model: "gpt", user: "u", max_tokens: 9, max_completion_tokens: 5, n: 1 },
    ...{ stop: "x", logit_bias: { 7: -1 }, decode_mode: "verify", top_p: null, seed: 3 },
    ...{ logprobs: true, enable_thinking: true, thinking_budget: 9, preserve_thinking: true },
    ...{ tools, tool_choice: "auto", parallel_tool_calls: true, documents: [{ text: "a" }] },
  };
  expect(chatRequest(params)).toEqual({
    ...{ messages, max_tokens: 5, stop: ["x"], logit_bias: [[7, -1]], decode_mode: "verify" },
    ...{ seed: 3, logprobs: 0, enable_thinking: true, thinking_budget: 9, preserve_thinking: true },
    ...{ tools, tool_choice: "auto", parallel_tool_calls: true, documents: [{ text: "a" }] },
  });
  const options = { tools, toolChoice: "auto", parallelToolCalls: true, seed: 1 } as const;
  expect(promptRequest("a", { ...options, documents: [] })).toEqual({
    ...{ prompt: "a", seed: 1, documents: [] },
    ...{ tools, tool_choice: "auto", parallel_tool_calls: true },
  });
});

test.each([{ functions: [] }, { n: 2 }, { raw: true }, { maxTokens: 3 }])(
  "%j is refused",
  (extra) => {
    const params = { messages, ...extra } as unknown as ChatCompletionParams;
    const name = Object.keys(extra)[0] as string;
    expect(() => chatRequest(params)).toThrow(
      expect.objectContaining({ code: "unsupported", message: expect.stringContaining(name) }),
    );
  },
);

test("text parts are joined, and invalid messages are refused", () => {
  const parts = [
    { type: "text", text: "to be" },
    { type: "text", text: "or not" },
  ] as const;
  const request = chatRequest({
    messages: [
      { role: "developer", content: "Be brief." },
      { role: "user", content: [...parts] },
    ],
  });
  expect(request.messages).toEqual([
    { role: "system", content: "Be brief." },
    { role: "user", content: "to be\nor not" },
  ]);
  const image = [{ type: "image_url", image_url: { url: "x" } }];
  const invalid: [unknown, string][] = [
    [[], "messages"],
    ["hi", "messages"],
    [[{ role: "User", content: "x" }], "messages[0].role"],
    [[{ role: "user" }], "messages[0].content"],
    [[{ role: "user", content: image }], "messages[0].content"],
    [[{ role: "assistant", content: null, tool_calls: [] }], "messages[0].content"],
    [[{ role: "assistant", tool_calls: "sun" }], "messages[0].tool_calls"],
    [[{ role: "assistant", tool_calls: [{}] }], "messages[0].tool_calls[0].function"],
    [[{ role: "assistant", function_call: {} }], "messages[0].function_call"],
  ];
  for (const [messages, path] of invalid) {
    const params = { messages } as ChatCompletionParams;
    expect(() => chatRequest(params), path).toThrow(`${path}: `);
  }
});
