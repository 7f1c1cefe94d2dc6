/** The second turn of a chat with a hybrid reads only what is new. Needs `web/build`. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { load } from "../../dist/index.node.js";

const MODEL = new URL("../../../tests/golden/models/qwen35-flat-f32-tied/", import.meta.url);
/** As templates that drop the reasoning of past turns do: the generation prompt opens some. */
const TEMPLATE =
  "{% for m in messages %}{{ m.content }}.{% endfor %}{% if add_generation_prompt %}" +
  `${"think ".repeat(4)}{% endif %}`;

/** Returns the files of a random hybrid whose tokens are single characters. */
function files() {
  const config = readFileSync(new URL("config.json", MODEL));
  const { vocab_size } = JSON.parse(config.toString());
  const letters = [..."abcdefghijklmnopqrstuvwxyz ."];
  const tokens = Array.from({ length: vocab_size }, (_, id) => [
    letters[id] ?? String.fromCodePoint(0x4e00 + id),
    id,
  ]);
  const model = { type: "BPE", vocab: Object.fromEntries(tokens), merges: [] };
  return [
    new File([config], "config.json"),
    new File([readFileSync(new URL("model.safetensors", MODEL))], "model.safetensors"),
    new File([JSON.stringify({ added_tokens: [], model })], "tokenizer.json"),
    new File([TEMPLATE], "chat_template.jinja"),
  ];
}

test("the state at the end of the last message is used again", async () => {
  const engine = await load(files(), { threads: 1, simd: "simd128" });
  try {
    const first = { role: "user" as const, content: "x".repeat(249) };
    const options = { max_tokens: 4, temperature: 0 };
    const create = engine.chat.completions.create.bind(engine.chat.completions);
    await create({ messages: [first], ...options });
    const answer = { role: "assistant" as const, content: "good" };
    const messages = [first, answer, { role: "user" as const, content: "more" }];
    const { usage } = await create({ messages, ...options });
    // A state is kept at the last multiple of 32 within the 250 characters of the first turn.
    expect(usage?.prompt_tokens_details?.cached_tokens).toBe(224);
  } finally {
    engine.dispose();
  }
});
