/**
 * Calls of tools, compared with `wf-run serve`: models that say a given text. Needs `web/build`, `wf-run`
 * and Python.
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type ChatCompletion,
  type ChatCompletionChunk,
  type ChatCompletionParams,
  type ChatMessage,
  type ChatTool,
  type ChatToolCall,
  type Engine,
  load,
} from "../../dist/index.node.js";
import { serve } from "./native.mjs";

const folder = mkdtempSync(join(tmpdir(), "wrinklefree-tools-"));
const CITY = { type: "object", properties: { city: { type: "string" } } };
const TOOLS: ChatTool[] = [
  { type: "function", function: { name: "write", description: "Writes.", parameters: {} } },
  { type: "function", function: { name: "sun", parameters: CITY } },
];
const user: ChatMessage = { role: "user", content: "Do it." };
const ASKED = { messages: [user], tools: TOOLS, temperature: 0, max_tokens: 300 };

beforeAll(() => {
  execFileSync("python3", [fileURLToPath(new URL("puppets.py", import.meta.url)), folder]);
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Returns a value with a word for each random id. */
function withoutIds<T>(value: T): T {
  const text = JSON.stringify(value, (key, field) => (key === "id" && field ? "an id" : field));
  return JSON.parse(text);
}

/** Joins the deltas of a stream. */
function joined(chunks: ChatCompletionChunk[]) {
  const calls: ChatToolCall[] = [];
  let [content, reasoning, reason] = ["", "", ""];
  for (const { choices } of chunks) {
    for (const { delta, finish_reason } of choices) {
      content += delta.content ?? "";
      reasoning += delta.reasoning_content ?? "";
      reason += finish_reason ?? "";
      for (const { index, function: called, ...begin } of delta.tool_calls ?? []) {
        if (begin.id) calls[index] = { ...begin, function: called } as ChatToolCall;
        else calls[index]!.function.arguments += called.arguments;
      }
    }
  }
  return withoutIds({ content, reasoning, calls, reason });
}

function chunksOf(events: string): ChatCompletionChunk[] {
  const data = events.trim().split("\n\n");
  const chunks = data.filter((event) => event.startsWith("data: {"));
  return chunks.map((event) => JSON.parse(event.slice("data: ".length)));
}

describe.each(["calls", "thinks"])("a model that %s", (name) => {
  let engine: Engine;
  let native: Awaited<ReturnType<typeof serve>>;
  const ours = (more: object = {}) =>
    engine.chat.completions.create({ ...ASKED, ...more } as ChatCompletionParams);
  const whole = async (more: object = {}) => (await ours(more)) as ChatCompletion;
  const theirs = async (more: object = {}): Promise<ChatCompletion> =>
    (await native.post({ ...ASKED, ...more })).json();

  beforeAll(async () => {
    const model = join(folder, name);
    const files = readdirSync(model).map(
      (file) => new File([readFileSync(join(model, file))], file),
    );
    engine = await load(files, { threads: 1, simd: "simd128" });
    native = await serve(model);
  });
  afterAll(() => {
    native?.end();
    return engine?.dispose();
  });

  test("gives the native answer", async () => {
    const [answer, want] = [await whole(), await theirs()];
    expect(withoutIds(answer.choices)).toEqual(withoutIds(want.choices));
    expect(answer.usage.prompt_tokens).toBe(want.usage.prompt_tokens);
    const { message, finish_reason } = answer.choices[0];
    expect(finish_reason).toBe("tool_calls");
    const [write, sun] = message.tool_calls ?? [];
    expect(write?.function).toEqual({ name: "write", arguments: '{"path": "a"}' });
    expect(sun?.function).toEqual({ name: "sun", arguments: '{"city": "Oslo"}' });
    expect(sun?.id).toMatch(/^call_\w+$/);
    expect(sun?.id).not.toBe(write?.id);
    const thinks = name === "thinks";
    expect(message.content).toBe(thinks ? null : "I look.\n");
    expect(message.reasoning_content).toBe(thinks ? "Hm." : undefined);
  });

  test("gives the native answer where the token limit cuts a call", async () => {
    const limit = (await whole()).usage.completion_tokens - 6;
    const [answer, want] = [
      await whole({ max_tokens: limit }),
      await theirs({ max_tokens: limit }),
    ];
    expect(withoutIds(answer.choices)).toEqual(withoutIds(want.choices));
    expect(answer.choices[0].finish_reason).toBe("length");
    expect(answer.choices[0].message.tool_calls).toHaveLength(2);
  });

  test("streams the native answer", async () => {
    const chunks: ChatCompletionChunk[] = [];
    const stream = await ours({ stream: true });
    for await (const chunk of stream as AsyncIterable<ChatCompletionChunk>) chunks.push(chunk);
    const events = await (await native.post({ ...ASKED, stream: true })).text();
    expect(joined(chunks)).toEqual(joined(chunksOf(events)));
    expect(joined(chunks)).toMatchObject({ reason: "tool_calls", calls: [{}, {}] });
  });

  test("reads the native prompt: tools, documents, calls and their results", async () => {
    const { message } = (await whole()).choices[0];
    const [write, sun] = message.tool_calls as [ChatToolCall, ChatToolCall];
    const history: ChatMessage[] = [
      user,
      message,
      { role: "tool", tool_call_id: write.id, content: "Done." },
      { role: "tool", tool_call_id: sun.id, content: [{ type: "text", text: "Rain." }] },
      { role: "assistant", content: null, function_call: { name: "sun", arguments: '{"city":' } },
      { role: "function", name: "sun", content: "" },
    ];
    const called = { name: "sun", arguments: { city: "Oslo" } };
    const object = { role: "assistant", tool_calls: [{ function: called }] };
    const documents = [{ title: "Weather", text: "It rains." }];
    const counts = [];
    for (const more of [
      { messages: history },
      { messages: [...history, object, user] },
      { messages: history, tool_choice: "none" },
      { messages: history, tools: null },
      { messages: [user], documents },
    ]) {
      const body = { ...more, max_tokens: 1 };
      const { usage } = await whole(body);
      const want = await theirs(body);
      expect(usage.prompt_tokens, JSON.stringify(want)).toBe(want.usage?.prompt_tokens);
      counts.push(usage.prompt_tokens);
    }
    expect(new Set(counts).size).toBe(4);
    const counted = await engine.countTokens([user], { tools: TOOLS, documents });
    expect(counted).toBe(counts.at(-1));
  });

  test("has calls in the parts of a stream, and its text alone as a text", async () => {
    const options = { tools: TOOLS, temperature: 0 };
    const calls: [string, string][] = [];
    let [text, reasoning] = ["", ""];
    for await (const part of engine.stream("Do it.", options)) {
      text += part.text;
      reasoning += part.reasoning;
      for (const { index, name, arguments: more } of part.toolCalls) {
        const call = (calls[index] ??= [name ?? "", ""]);
        call[1] += more;
      }
    }
    expect(calls).toEqual([
      ["write", '{"path": "a"}'],
      ["sun", '{"city": "Oslo"}'],
    ]);
    expect([text, reasoning]).toEqual(name === "thinks" ? ["", "Hm."] : ["I look.\n", ""]);
    expect(await engine.generate("Do it.", options)).toBe(text);
    const none = await engine.generate("Do it.", { ...options, toolChoice: "none" });
    expect(none).toContain("<tool_call>");
  });

  test("refuses by name what needs a grammar", async () => {
    const strict = { type: "function", function: { ...TOOLS[1]!.function, strict: true } };
    const named = { type: "function", function: { name: "sun" } };
    for (const [wrong, field] of [
      [{ tool_choice: "required" }, "tool_choice"],
      [{ tool_choice: named }, "tool_choice"],
      [{ parallel_tool_calls: false }, "parallel_tool_calls"],
      [{ tools: [TOOLS[0], strict] }, "tools[1].function.strict"],
    ] as const) {
      const message = `${field} needs a grammar, which this package does not have: leave it out`;
      await expect(whole(wrong)).rejects.toMatchObject({ code: "bad_request", message });
    }
    const required = engine.generate("Hi", { tools: TOOLS, toolChoice: "required" as "auto" });
    await expect(required).rejects.toThrow("toolChoice needs a grammar");
  });

  test("refuses wrong tools by name, and tools without a conversation", async () => {
    for (const [wrong, message] of [
      [{ tools: [{ type: "custom", function: { name: "f" } }] }, "tool type `custom`"],
      [{ tools: [{ type: "function" }] }, "`tools[0]`: the field `function` is missing"],
      [{ tools: [TOOLS[0], TOOLS[0]] }, "tools[1]: another tool has the name `write`"],
      [{ tool_choice: "sun" }, "expected `none`, `auto`, `required`"],
      [{ tool_choice: { function: { name: "moon" } } }, "tool_choice names `moon`"],
    ] as const) {
      const wanted = { code: "bad_request", message: expect.stringContaining(message) };
      await expect(whole(wrong)).rejects.toMatchObject(wanted);
    }
    const needs = { code: "bad_request", message: expect.stringMatching(/^tools and documents/) };
    for (const [prompt, options] of [
      ["Hi", { tools: TOOLS, raw: true }],
      ["Hi", { documents: [{}], raw: true }],
      [[1, 2], { tools: TOOLS }],
    ] as const) {
      await expect(engine.generate(prompt, options)).rejects.toMatchObject(needs);
    }
  });
});
