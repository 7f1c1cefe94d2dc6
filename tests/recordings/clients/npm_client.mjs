// Answers the requests of standard input with the npm package, and prints JSON.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const asked = JSON.parse(readFileSync(0, "utf8"));
const { load } = await import(asked.package);
// One thread and plain SIMD, which every engine has.
const FIXED = { threads: 1, simd: "simd128", context: 512 };

/** Returns a result, or the error's code and words. */
async function tried(call) {
  try {
    return await call();
  } catch (error) {
    return { error: `${error.code ?? error.name}: ${error.message}` };
  }
}

/** Returns the fields of an object in camelCase. */
function camel(options) {
  const name = (key) => key.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(options).map(([key, value]) => [name(key), value]));
}

async function ask(engine, way, given, options) {
  if (way === "generate") {
    const parts = [];
    for await (const { text, tokens, reasoning, finishReason } of engine.stream(given, {
      raw: true,
      ...camel(options),
    })) {
      parts.push({ text, tokens, reasoning, finishReason });
    }
    return { generate: await engine.generate(given, { raw: true, ...camel(options) }), parts };
  }
  const { logprobs, ...rest } = options;
  const body = { messages: given, ...rest, stream: way === "stream" };
  const answer = await engine.chat.completions.create(body);
  if (way === "chat") return answer;
  const chunks = [];
  for await (const chunk of answer) chunks.push(chunk.choices);
  return chunks;
}

/** Returns a model's files. */
function files(folder) {
  return readdirSync(folder).map((name) => new File([readFileSync(join(folder, name))], name));
}

const engines = { default: await load(undefined, FIXED) };
for (const [name, folder] of Object.entries(asked.models)) {
  engines[name] = await load(files(folder), FIXED);
}
const answers = {};
for (const [name, [model, ...rest]] of Object.entries(asked.requests)) {
  answers[name] = await tried(() => ask(engines[model], ...rest));
}
const engine = engines.default;
answers["tokenize"] = await tried(() => engine.tokenize("a fox"));
answers["raw is off by default"] = await tried(() =>
  engine.generate("Tell me a story about a fox named Pip.", { maxTokens: 12, temperature: 0 }),
);
answers["enableThinking"] = await tried(() =>
  engines.thinks.generate("Hi", { maxTokens: 80, enableThinking: false }),
);
answers["chat with tools"] = await tried(() =>
  engines.calls.chat.completions.create({
    messages: [{ role: "user", content: "Hi" }],
    tools: [{ type: "function", function: { name: "sun", parameters: { type: "object" } } }],
  }),
);
for (const each of Object.values(engines)) await each.dispose();
process.stdout.write(JSON.stringify(answers));
